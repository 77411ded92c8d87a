"""Damaged and hostile files: does anything but an error of continua come out?

    make fuzz ARGS="--minutes 5"

Valid files of every format are mutated and loaded. A finding is an exception that is not a
`ContinuaError`, more than 10 s of processor time, more than 1 GB of memory, or a file with a
checksum that loads as something else. Findings are written with their mutants.
"""

from __future__ import annotations

import argparse
import gc
import json
import logging
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import torch

import continua as ct

from .corpus import Format, corpus
from .mutate import mutated

SECONDS, BYTES = 10, 2**30
#: a process that says nothing for so long, in seconds of processor time, is ended
PATIENCE = 60


class Hang(BaseException):
    """Too much processor time."""


def _stop(*_: Any) -> None:
    raise Hang


def resident() -> int:
    """The most memory that this process has had, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


class Fuzzer:
    """Mutants of a corpus, each made from the seed and its number.

    Args:
        formats: what to mutate.
        seed: of the mutants.
        work: a folder for the mutants.
        out: a folder for the findings.
    """

    def __init__(self, formats: dict[str, Format], seed: int, work: Path, out: Path):
        self.formats, self.seed, self.work, self.out = formats, seed, work, out
        self.names = [name for name, one in formats.items() for _ in range(one.weight)]
        self.valid = {name: self._valid(one) for name, one in formats.items()}

    def _valid(self, one: Format) -> Any:
        shutil.rmtree(self.work, ignore_errors=True)
        shutil.copytree(one.folder, self.work)
        return one.load(self.work)

    def mutant(self, number: int) -> tuple[str, bool]:
        """Write a mutant; the name of its format, and whether it must be refused or equal."""
        rng = random.Random(f"{self.seed} {number}")
        name = rng.choice(self.names)
        one = self.formats[name]
        shutil.rmtree(self.work, ignore_errors=True)
        shutil.copytree(one.folder, self.work)
        file = rng.choice(one.files)
        path = self.work / file
        content, repaired = mutated(file, path.read_bytes(), rng)
        path.write_bytes(content)
        if one.repair is not None and rng.random() < 0.6:
            one.repair(self.work)
            repaired = True
        return name, file in one.sealed and not repaired

    def tried(self, number: int) -> tuple[str, str, str | None]:
        """One mutant: its format, what came out, and what is wrong with that."""
        name, sealed = self.mutant(number)
        before = resident()
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        try:
            found = self.formats[name].load(self.work)
            result, wrong = "loaded", None
            if sealed and found != self.valid[name]:
                wrong = "loads as something else under an old checksum"
        except ct.ContinuaError:
            result, wrong = "refused", None
        except Hang:
            result, wrong = "hang", f"more than {SECONDS} s: {_where()}"
        except Exception as error:
            result, wrong = "crash", f"{type(error).__name__}: {error!s:.200} {_where()}"
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        if resident() - before > BYTES:
            result, wrong = "memory", f"{(resident() - before) / 2**30:.1f} GB"
        if wrong is not None:
            self.keep(number, name, wrong)
        return name, result, wrong

    def keep(self, number: int, name: str, wrong: str) -> None:
        """Write a finding, with the mutant made anew: loading may have changed it."""
        place = self.out / f"{name}-{self.seed}-{number}"
        self.mutant(number)
        shutil.copytree(self.work, place, dirs_exist_ok=True)
        (place / "finding.txt").write_text(f"{wrong}\n")

    def serve(self, numbers: range, pipe: int) -> None:
        """Try these mutants in a process of its own, with a line about each."""
        signal.signal(signal.SIGPROF, _stop)
        # No mutant may take the memory of the machine.
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        most = pages * resource.getpagesize() + 4 * BYTES
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
        for number in numbers:
            os.write(pipe, (json.dumps([number, *self.tried(number)]) + "\n").encode())


def _where() -> str:
    """Where the last error came from, without numbers of lines that change."""
    frames = traceback.extract_tb(sys.exc_info()[2])
    return " < ".join(f"{Path(f.filename).name}:{f.name}" for f in reversed(frames[-4:]))


def campaign(fuzzer: Fuzzer, mutants: int, minutes: float, chunk: int = 500) -> Counter[str]:
    """Try mutants in processes one after the other; what came out, by format and result."""
    seen: Counter[str] = Counter()
    end, number = time.monotonic() + 60 * minutes, 0
    while number < mutants and time.monotonic() < end:
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            code = 1
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            try:
                fuzzer.serve(range(number, min(number + chunk, mutants)), writing)
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        os.close(writing)
        with os.fdopen(reading) as lines:
            number = _followed(lines, child, number, end, seen)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if code == -signal.SIGTERM:
            return seen
        if code and time.monotonic() < end:
            fuzzer.keep(number, name := fuzzer.mutant(number)[0], f"exit code {code}")
            seen[f"{name} crash"] += 1
            print(f"{name} {number}: the process ended with {code}", flush=True)
            number += 1
    return seen


def _followed(lines: Any, child: int, number: int, end: float, seen: Counter[str]) -> int:
    """Read what a child says until it ends, or has to; the number of the next mutant."""

    def stop() -> None:
        os.kill(child, signal.SIGKILL)

    def look(*_: Any) -> None:
        if _worked(child) - before > PATIENCE:
            stop()
        signal.alarm(PATIENCE)

    signal.signal(signal.SIGALRM, look)
    while True:
        before = _worked(child)
        signal.alarm(PATIENCE)
        line = lines.readline()
        signal.alarm(0)
        if not line:
            return number
        number, name, result, wrong = json.loads(line)
        number += 1
        seen[f"{name} {result}"] += 1
        if wrong is not None:
            print(f"{name} {number - 1}: {wrong}", flush=True)
        if time.monotonic() > end:
            stop()


def _worked(process: int) -> float:
    """Seconds of processor time, which others on the machine do not change."""
    told = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(told[11]) + int(told[12])) / os.sysconf("SC_CLK_TCK")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--mutants", type=int, default=10**9)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--formats", nargs="*", help="only these")
    parser.add_argument("--out", type=Path, default=Path("runs/fuzz"), help="for the findings")
    options = parser.parse_args()
    # The child that the signal ends too is the end of the campaign.
    signal.signal(signal.SIGTERM, lambda *_: None)
    logging.disable()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    memory = "/dev/shm" if os.path.isdir("/dev/shm") else None
    with tempfile.TemporaryDirectory(dir=memory) as temporary:
        formats = corpus(Path(temporary))
        if options.formats:
            formats = {name: formats[name] for name in options.formats}
        fuzzer = Fuzzer(formats, options.seed, Path(temporary, "mutant"), options.out)
        gc.freeze()
        seen = campaign(fuzzer, options.mutants, options.minutes)
    findings = 0
    for name in formats:
        counts = {key.split()[1]: n for key, n in seen.items() if key.split()[0] == name}
        findings += sum(n for key, n in counts.items() if key not in ("loaded", "refused"))
        print(f"{sum(counts.values()):7,}  {name}: {counts}")
    where = f" in {options.out}" if findings else ""
    print(f"{sum(seen.values()):,} mutants, {findings} findings{where}")
    return bool(findings)


if __name__ == "__main__":
    sys.exit(main())
