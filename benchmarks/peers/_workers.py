"""Worker processes: one library each, idle until asked."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from continua import ContinuaError

from ._sides.protocol import Outcome

SIDES = Path(__file__).parent
SOURCE = SIDES.parents[1] / "src"

# Longer than the slowest row takes with everything that is compiled for it.
PATIENCE_SECONDS = 900.0


class WorkerError(ContinuaError):
    """A library could not be asked, or could not answer; the text says why."""


class Worker:
    """A process that measures one library; one that ended is started again for the next problem.

    Args:
        side: the last part of its script's name, `with_SIDE`.
        python: the interpreter of the library's environment.
        threads: that the library may use.
        patience: for how many seconds to wait for an answer.
        source: the folder that `continua` is imported from.
    """

    def __init__(
        self,
        side: str,
        python: str | os.PathLike[str] = sys.executable,
        threads: int = 1,
        patience: float = PATIENCE_SECONDS,
        source: Path = SOURCE,
    ):
        self.side, self.threads = side, threads
        self.version = ""
        self._python, self._patience, self._source = os.fspath(python), patience, source
        self._lost: WorkerError | None = None  # why its process is no more
        # A file, because a pipe that nobody reads stops who writes to it when it is full.
        self._complaints = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self._process = self._started()

    def _started(self) -> subprocess.Popen[str]:
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join((str(SIDES), str(self._source))),
            "PYTHONSAFEPATH": "1",  # not from the folder that the command is run in
            # Read when a library starts; what can be set later is set with "prepare".
            "OMP_NUM_THREADS": str(self.threads),
            "MKL_NUM_THREADS": str(self.threads),
            "PYTHONWARNINGS": "ignore",
        }
        return subprocess.Popen(
            [self._python, "-m", f"_sides.with_{self.side}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._complaints,
            text=True,
            env=environment,
        )

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()
        self._complaints.close()

    def _end(self) -> None:
        self._process.kill()
        self._process.communicate()

    def prepare(self, problem: Path) -> dict[str, Any]:
        """Let it make a problem its own and solve it once; what it tells of itself."""
        if self._process.poll() is not None:
            self._end()  # closes its pipes
            self._complaints.seek(0)
            self._complaints.truncate()
            self._process, self._lost = self._started(), None
        answer = self._ask({"do": "prepare", "problem": str(problem), "threads": self.threads})
        self.version = answer["version"]
        return answer

    def check(self, file: Path) -> Outcome:
        """What it finds, for comparison."""
        answer = self._ask({"do": "check", "file": str(file)})
        with np.load(file, allow_pickle=False) as found:
            gradients = {
                name.partition("/")[2]: found[name] for name in found.files if name != "state"
            }
            return Outcome(found["state"], gradients, answer["evaluations"])

    def time(self, repeats: int, processor: bool = False) -> list[float]:
        """Seconds of each of so many solves, by the clock on the wall or of the processor."""
        request = {"do": "time", "repeats": repeats, "processor": processor}
        seconds: list[float] = self._ask(request)["seconds"]
        return seconds

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        if self._lost is not None:
            raise self._lost
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        late = threading.Event()

        def give_up() -> None:
            late.set()
            process.kill()

        clock = threading.Timer(self._patience, give_up)
        clock.start()
        try:
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except BrokenPipeError:
            line = ""
        finally:
            clock.cancel()
        if late.is_set():
            process.wait()
            self._lost = WorkerError(f"no answer in {self._patience:g} s")
            raise self._lost
        if not line.endswith("\n"):  # it ended in the middle of one
            self._lost = WorkerError(self._last_words())
            raise self._lost
        answer: dict[str, Any] = json.loads(line)
        for why in ("unsupported", "failed"):
            if why in answer:
                raise WorkerError(answer[why])
        return answer

    def _last_words(self) -> str:
        self._process.wait()
        self._complaints.seek(0)
        lines: Sequence[str] = self._complaints.read().strip().splitlines() or ["no words"]
        return f"its process ended with {self._process.returncode}: {lines[-1]}"
