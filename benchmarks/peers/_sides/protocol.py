"""How a worker is asked, and what a side of the comparison has to offer.

A worker is a process in the environment of one library. It needs nothing of continua: NumPy and the
library it measures. It reads one JSON object per line and answers each with one:

    {"do": "prepare", "problem": FILE, "threads": 1}  {"library": .., "version": .., ..}
    {"do": "check", "file": FILE}                     {"evaluations": ..}
    {"do": "time", "repeats": 5}                      {"seconds": [..]}

or with {"unsupported": WHY} or {"failed": WHY}. What the library prints goes to stderr.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


@dataclass(frozen=True)
class Problem:
    """What every side solves.

    Args:
        row: the name of the row, such as "galerkin/fixed-backprop".
        kind: of the field, such as "mlp"; it tells what `weights` are.
        weights: by name, in the order in which gradients are compared.
        inputs: the state at depth 0 is `inputs["x"]`.
        settings: "solver", "steps" or "tolerance", "gradient", and what else the row needs.
    """

    row: str
    kind: str
    weights: dict[str, Array]
    inputs: dict[str, Array]
    settings: dict[str, Any]

    def write(self, path: Path) -> None:
        """Write it as arrays of NumPy, without pickle."""
        about = {"row": self.row, "kind": self.kind, "settings": self.settings}
        arrays = {f"weights/{name}": value for name, value in self.weights.items()}
        arrays |= {f"inputs/{name}": value for name, value in self.inputs.items()}
        np.savez(path, **{"about": np.array(json.dumps(about)), **arrays})  # type: ignore[arg-type]

    @staticmethod
    def read(path: Path) -> Problem:
        """What `write` wrote."""
        with np.load(path, allow_pickle=False) as file:
            about = json.loads(str(file["about"]))
            parts: dict[str, dict[str, Array]] = {"weights": {}, "inputs": {}}
            for name in file.files:
                part, _, key = name.partition("/")
                if key:
                    parts[part][key] = file[name]
        return Problem(about["row"], about["kind"], **parts, settings=about["settings"])


@dataclass(frozen=True)
class Outcome:
    """One forward and backward: the last state, the gradients by name, evaluations if known."""

    state: Array
    gradients: dict[str, Array]
    evaluations: int | None = None


@dataclass(frozen=True)
class Case:
    """A problem as one library solves it.

    Args:
        step: one forward and backward, finished when it returns; only this is timed.
        outcome: the same once more, with its results. It may count evaluations.
        note: what was taken where the library has no exact counterpart.
        solver: of a fixed grid, where it is another than the problem names.
    """

    step: Callable[[], object]
    outcome: Callable[[], Outcome]
    note: str = ""
    solver: str = ""


class Unsupported(Exception):  # noqa: N818
    """The library has no way to solve the problem; the text says what it lacks."""


@dataclass
class Side:
    """A library: its name, and what it makes of a problem.

    Args:
        library: as it is installed.
        version: of it.
        build: of problems by their row's first part; absent rows are unsupported.
        threads: sets how many the library uses.
    """

    library: str
    version: str
    build: Mapping[str, Callable[[Problem], Case]]
    threads: Callable[[int], None]
    missing: Mapping[str, str] = field(default_factory=dict)

    def prepare(self, problem: Problem) -> Case:
        """The case, run once so that what is made at first use is made."""
        row = problem.row.split("/")[0]
        if row not in self.build:
            raise Unsupported(self.missing.get(row, f"{self.library} has nothing for it"))
        case = self.build[row](problem)
        case.step()
        return case


def serve(side: Side) -> None:
    """Answer requests from stdin until it ends."""
    # What libraries print must not mix with the answers.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    case: Case | None = None
    for line in sys.stdin:
        request = json.loads(line)
        try:
            if request["do"] == "prepare":
                side.threads(request["threads"])
                started = time.perf_counter()
                case = None
                case = side.prepare(Problem.read(Path(request["problem"])))
                answer: dict[str, Any] = {
                    "library": side.library,
                    "version": side.version,
                    "note": case.note,
                    "solver": case.solver,
                    "first": time.perf_counter() - started,
                }
            elif case is None:
                answer = {"failed": "nothing is prepared"}
            elif request["do"] == "check":
                answer = _checked(case.outcome(), Path(request["file"]))
            else:
                answer = {"seconds": _timed(case.step, request["repeats"], request["processor"])}
        except Unsupported as error:
            answer = {"unsupported": str(error)}
        except Exception as error:
            answer = {"failed": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def _checked(outcome: Outcome, path: Path) -> dict[str, Any]:
    gradients = {f"gradients/{name}": g for name, g in outcome.gradients.items()}
    np.savez(path, **{"state": outcome.state, **gradients})  # type: ignore[arg-type]
    return {"evaluations": outcome.evaluations}


def _timed(step: Callable[[], object], repeats: int, processor: bool) -> list[float]:
    clock, seconds = time.process_time if processor else time.perf_counter, []
    gc.collect()
    gc.disable()
    try:
        for _ in range(repeats):
            started = clock()
            step()
            seconds.append(clock() - started)
    finally:
        gc.enable()
    return seconds
