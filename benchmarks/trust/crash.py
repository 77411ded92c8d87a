"""Trainings that are killed, or meet an error, and resume: do they end with the same bits?

    make crash ARGS="--kills 200"

A short training on digits is disturbed at random moments with SIGKILL, and at every file operation
with SIGKILL, with an I/O error, with a full disk and without memory. It is then resumed, now and
then under another disturbance. Its last checkpoint and metrics are compared bit for bit with those
of an undisturbed run, and the names of all its files. Every run is a fork of one process, since
importing torch takes longer than the training.
"""

from __future__ import annotations

import argparse
import errno
import gc
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import nn

import continua as ct
from continua.data import Dataset, Part, load
from continua.train import METRICS, Checkpoints, Classification, Training, fit

#: what can happen at a file operation, or in the forward of a module
FAULTS: dict[str, Callable[[], BaseException]] = {
    "I/O error": lambda: OSError(errno.EIO, os.strerror(errno.EIO)),
    "full disk": lambda: OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)),
    "no memory": MemoryError,
}
KILL, MOMENT = "SIGKILL", "random moment"
#: events of `sys.audit` about files and folders
EVENTS = {
    "open", "os.listdir", "os.scandir",
    "os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.chmod", "os.truncate",
}  # fmt: skip
#: those that `shutil.rmtree` causes, of names inside a folder that is open
INSIDE = {"os.scandir", "os.remove", "os.rmdir"}
# A checkpoint after every batch, and a change of size on the way.
COURSE = Training(
    epochs=2, epoch_steps=2, batch_size=16, refine_epochs=(1,), checkpoint_minutes=1e-9
)


class Net(nn.Module):
    """Digits to classes, with statistics in the block."""

    def __init__(self, width: int = 12):
        super().__init__()
        unit = nn.Sequential(nn.BatchNorm1d(width), nn.Linear(width, width), nn.Tanh())
        self.stem = nn.Sequential(nn.Flatten(), nn.Linear(64, width), nn.Dropout(0.2))
        self.block = ct.ODEBlock(unit, ct.PiecewiseConstant(1), ct.Euler(steps=1))
        self.head = nn.Linear(width, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.block(self.stem(x)))


def task() -> Classification:
    whole = load("digits")
    parts = {
        name: Part(part.inputs[:64].float() / 16, part.targets[:64])
        for name, part in (("train", whole.train), ("validation", whole.validation))
    }
    return Classification(Dataset("digits", **parts, test=parts["validation"], classes=10))


# -- one run, in a process of its own --------------------------------------------------------------


class Trap:
    """Counts file operations in a folder, or calls of modules, and does something at one."""

    def __init__(self, folder: Path, fault: str, number: int):
        self.folder, self.fault, self.number = str(folder), fault, number
        self.count = 0

    def at_files(self) -> None:
        sys.addaudithook(self._heard)
        fsync, fdopen = os.fsync, os.fdopen  # of these there is no event

        def counted(handle: Any) -> None:
            self.tick()
            fsync(handle)

        os.fsync = counted
        os.fdopen = lambda *arguments: Written(fdopen(*arguments), self)

    def at_modules(self) -> None:
        nn.modules.module.register_module_forward_pre_hook(lambda *_: self.tick())

    def _heard(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event not in EVENTS:
            return
        inside = event in INSIDE and not os.path.isabs(str(arguments[0]))
        if inside or str(arguments[0]).startswith(self.folder):
            self.tick()

    def tick(self) -> None:
        self.count += 1
        if self.count == self.number:
            if self.fault == KILL:
                os.kill(os.getpid(), signal.SIGKILL)
            raise FAULTS[self.fault]()


class Written:
    """A file in which something happens in the middle of what is written."""

    def __init__(self, file: Any, trap: Trap):
        self.file, self.trap = file, trap

    def __enter__(self) -> Written:
        return self

    def __exit__(self, *_: Any) -> None:
        self.file.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)

    def write(self, content: bytes) -> None:
        half = len(content) // 2
        self.file.write(content[:half])
        self.file.flush()
        self.trap.tick()
        self.file.write(content[half:])


def forked(folder: Path, subject: Classification, counter: Trap | None, where: str) -> int:
    """Train in a child; its process id."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        if counter is not None:
            counter.at_files() if where == "file operation" else counter.at_modules()
        fit(lambda: ct.build(Net), subject, COURSE, folder, device="cpu")
        code = 0
        if counter is not None:
            (folder.parent / "count").write_text(str(counter.count))
    except (ct.ContinuaError, MemoryError, OSError):
        code = 3
    except BaseException as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
    finally:
        os._exit(code)


def ended(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def outcome(folder: Path) -> dict[str, Any]:
    """All that a run left, apart from the clock."""
    last = Checkpoints(folder).last()
    assert last is not None
    found: dict[str, Any] = {
        f"{name} {key}": value.numpy().tobytes()
        for name in ("model.safetensors", "training.safetensors")
        for key, value in load_file(last / name).items()
    }
    state = json.loads((last / "training.json").read_text())
    del state["position"]["seconds"]
    lines = [json.loads(line) for line in (folder / METRICS).read_text().splitlines()]
    found["metrics"] = [{k: v for k, v in line.items() if k != "seconds"} for line in lines]
    found["files"] = sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*"))
    return found | {"state": state, "index": Checkpoints(folder).index()}


# -- the campaign ----------------------------------------------------------------------------------


class Campaign:
    """Disturbs runs and compares what they end with.

    Args:
        folder: for the runs.
        out: for those that went wrong.
        seed: of the moments.
    """

    def __init__(self, folder: Path, out: Path, seed: int):
        self.folder, self.out, self.random = folder, out, random.Random(seed)
        self.task = task()
        self.places: dict[str, int] = {}
        for where in ("file operation", "module call"):
            self._unbroken(where)
            self.places[where] = self.count()
        times = []
        for _ in range(3):
            start = time.perf_counter()
            self.expected = self._unbroken(None)
            times.append(time.perf_counter() - start)
        self.seconds = max(times)
        self.done: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.stopped = False

    def _unbroken(self, where: str | None) -> dict[str, Any]:
        run = self.folder / "unbroken"
        shutil.rmtree(run, ignore_errors=True)
        counter = Trap(run, KILL, 0) if where else None
        assert ended(forked(run, self.task, counter, where or "")) == 0
        return outcome(run)

    def count(self) -> int:
        """What the last run that ended had counted."""
        return int((self.folder / "count").read_text())

    def faults(self) -> list[tuple[str, str, int]]:
        """Every file operation with every fault, and modules without memory, in random order."""
        found = [
            ("file operation", fault, number)
            for fault in (KILL, *FAULTS)
            for number in range(1, self.places["file operation"] + 1)
        ]
        found += [
            ("module call", "no memory", number)
            for number in range(1, self.places["module call"] + 1, 4)
        ]
        self.random.shuffle(found)
        self.every = tuple(found)
        return found

    def disturb(self, run: Path, what: tuple[str, str, int] | None) -> None:
        """One disturbance; counted if the run did not end before."""
        if what is None:
            child = forked(run, self.task, None, "")
            time.sleep(self.random.uniform(0, self.seconds))
            os.kill(child, signal.SIGKILL)  # not yet waited for, so the id is still its own
            if ended(child) == -signal.SIGKILL:
                self.done[f"{MOMENT}, {KILL}"] += 1
            return
        where, fault, number = what
        code = ended(forked(run, self.task, Trap(run, fault, number), where))
        if code in (-signal.SIGKILL, 3):
            self.done[f"{where}, {fault}"] += 1
        elif code == 0:  # an error in tidying up is nothing to stop for
            # A run that resumes may end before this place.
            self.done[f"{where}, {fault}, run not stopped"] += self.count() >= number
        else:
            self.went_wrong(run, f"{what}: exit code {code}")

    def attempt(self, what: tuple[str, str, int] | None) -> None:
        """Disturb a run, now and then once more, then let it end and compare."""
        run = self.folder / "run"
        shutil.rmtree(run, ignore_errors=True)
        self.disturb(run, what)
        while self.random.random() < 0.2:  # this time the run may be one that resumes
            self.disturb(run, self.random.choice((None, self.random.choice(self.every))))
        code = ended(forked(run, self.task, None, ""))
        found = outcome(run) if code == 0 else {}
        different = [key for key in self.expected if found.get(key) != self.expected[key]]
        if different and not self.stopped:  # the signal reaches the children too
            self.went_wrong(run, f"{what}: exit code {code}, other {', '.join(different)}")

    def went_wrong(self, run: Path, sentence: str) -> None:
        print(sentence, flush=True)
        self.wrong.append(sentence)
        shutil.copytree(run, self.out / f"wrong-{len(self.wrong)}", dirs_exist_ok=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=200, help="disturbances, at least")
    parser.add_argument("--minutes", type=float, default=60, help="stop after this time")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("runs/crash"), help="for wrong runs")
    options = parser.parse_args()
    torch.set_num_threads(1)
    # In memory where that can be: a killed process loses nothing that it wrote, synced or not.
    memory = "/dev/shm" if os.path.isdir("/dev/shm") else None
    with tempfile.TemporaryDirectory(dir=memory) as temporary:
        # What is imported when it is first used is imported once, here.
        fit(lambda: ct.build(Net), task(), COURSE, Path(temporary, "first"), device="cpu")
        gc.freeze()
        campaign = Campaign(Path(temporary), options.out, options.seed)
        queue = campaign.faults()
        print(f"{campaign.places}, {campaign.seconds:.2f} s a run", flush=True)
        turn, end = 0, time.monotonic() + 60 * options.minutes
        signal.signal(signal.SIGTERM, lambda *_: setattr(campaign, "stopped", True))
        while (
            sum(campaign.done.values()) < options.kills
            and time.monotonic() < end
            and not campaign.stopped
        ):
            campaign.attempt(queue.pop() if turn % 3 and queue else None)
            turn += 1
            if turn % 100 == 0:
                print(f"{sum(campaign.done.values()):,}, {len(campaign.wrong)} wrong", flush=True)
    for what, count in sorted(campaign.done.items()):
        print(f"{count:6,}  {what}")
    print(f"{turn:,} runs disturbed {sum(campaign.done.values()):,} times")
    print(
        f"{len(campaign.every) - len(queue):,} of {len(campaign.every):,} places and faults tried"
    )
    print(
        f"{len(campaign.wrong)} in {options.out}"
        if campaign.wrong
        else "all ended with the same bits"
    )
    return bool(campaign.wrong)


if __name__ == "__main__":
    sys.exit(main())
