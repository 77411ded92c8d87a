"""Rows of the comparison: ours and a peer in turn, round by round."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ._reference import Errors, errors, reference
from ._sides.protocol import Problem
from ._workers import Worker, WorkerError

# A turn shorter than this is repeated within the round, so that a round tells more than the clock's
# own noise.
TURN_SECONDS = 0.1

# Two sides solve the same problem if both are this near to it. Rounding is all that may differ on
# one grid; an adjoint equation has the error of the grid. Steps are chosen for the state: nothing
# holds the gradient to the tolerance, and with fast functions of depth it is off by hundreds of it.
ON_A_GRID = 1e-4
ADJOINT_ON_A_GRID = 1e-3
STATE_TOLERANCES = 100.0
GRADIENT_TOLERANCES = 1000.0

OURS = "our own side fails"

#: seconds of ours and theirs, round by round
Times = list[tuple[float, float]]


@dataclass(frozen=True)
class Row:
    """One side of one row beside ours, or why there is none.

    Args:
        row: the name of the problem.
        peer: the library.
        ratio: the median over rounds of our time by theirs.
        low: its lower quartile.
        high: its upper quartile.
        seconds: the medians, ours and theirs.
        state_error: ours, relative to float64.
        gradient_error: ours.
        peer_state_error: theirs.
        peer_gradient_error: theirs.
        evaluations: of the field, ours and theirs, None where it is not known.
        exponents: of time and memory, for rows that tell how costs grow.
        note: of what stands in for what.
        missing: why there are no numbers.
    """

    row: str
    peer: str
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    seconds: tuple[float, float] | None = None
    state_error: float | None = None
    gradient_error: float | None = None
    peer_state_error: float | None = None
    peer_gradient_error: float | None = None
    evaluations: tuple[int | None, int | None] | None = None
    exponents: dict[str, float] | None = None
    note: str = ""
    missing: str = ""


@dataclass(frozen=True)
class _Prepared:
    worker: Worker
    errors: Errors
    evaluations: int | None
    note: str


def compare(
    problem: Problem,
    ours: Worker,
    peers: Mapping[str, Worker | WorkerError],
    rounds: int,
    folder: Path,
    tell: Callable[[str], None],
    processor: bool = False,
) -> list[Row]:
    """The rows of a problem.

    Args:
        problem: the same for all.
        ours: our worker.
        peers: by name; an error stands for a peer that is not there.
        rounds: of one turn each.
        folder: for files that workers read and write.
        tell: is told what is being measured.
        processor: a turn counts its least processor time, not the median on the wall.
    """
    file = folder / "problem.npz"
    problem.write(file)
    tell(f"{problem.row}: reference")
    true = {"": reference(problem)}

    def prepared(worker: Worker) -> _Prepared:
        tell(f"{problem.row}: {worker.side}")
        about = worker.prepare(file)
        found = worker.check(folder / "outcome.npz")
        solver = about["solver"]
        if solver not in true:
            true[solver] = reference(problem, solver)
        return _Prepared(worker, errors(found, true[solver]), found.evaluations, about["note"])

    rows: list[Row] = []
    sides: dict[str, _Prepared] = {}
    try:
        mine = prepared(ours)
        _require_same(problem, mine.errors)
    except WorkerError as error:
        return [Row(problem.row, name, missing=f"{OURS}: {error}") for name in peers]
    for name, peer in peers.items():
        try:
            if isinstance(peer, WorkerError):
                raise peer
            sides[name] = prepared(peer)
            _require_same(problem, sides[name].errors)
        except WorkerError as error:
            sides.pop(name, None)
            rows.append(Row(problem.row, name, missing=str(error)))
    measured = _rounds(mine.worker, {n: s.worker for n, s in sides.items()}, rounds, processor)
    for name, times in measured.items():
        if isinstance(times, WorkerError):
            rows.append(Row(problem.row, name, missing=str(times)))
        else:
            rows.append(_row(problem.row, name, mine, sides[name], times))
    return sorted(rows, key=lambda row: list(peers).index(row.peer))


def _require_same(problem: Problem, found: Errors) -> None:
    settings = problem.settings
    if "tolerance" in settings:
        tolerance = settings["tolerance"]
        bounds = STATE_TOLERANCES * tolerance, GRADIENT_TOLERANCES * tolerance
    else:
        bounds = (ADJOINT_ON_A_GRID if settings["gradient"] == "adjoint" else ON_A_GRID,) * 2
    for what, error, bound in zip(
        ("state", "gradient"), (found.state, found.gradient), bounds, strict=True
    ):
        if not error <= bound:
            raise WorkerError(f"it solves another problem: its {what} is off by {error:.0e}")


def _rounds(
    ours: Worker, peers: Mapping[str, Worker], rounds: int, processor: bool = False
) -> dict[str, Times | WorkerError]:
    """Seconds of ours and theirs in each round, or why a peer was lost on the way.

    Ours is measured anew for each peer.
    """
    repeats: dict[str, int] = {}
    middle = min if processor else statistics.median

    def turn(worker: Worker) -> float:
        if worker.side not in repeats:
            repeats[worker.side] = max(1, round(TURN_SECONDS / min(worker.time(2))))
        return middle(worker.time(repeats[worker.side], processor))

    def own_turn() -> float:
        try:
            return turn(ours)
        except WorkerError as error:
            raise WorkerError(f"{OURS}: {error}") from None

    times: dict[str, Times] = {name: [] for name in peers}
    lost: dict[str, WorkerError] = {}
    for i in range(rounds):
        for name, peer in peers.items():
            if name in lost:
                continue
            try:
                # Who comes first alternates: the second finds the caches and clock of the first.
                if i % 2:
                    theirs, mine = turn(peer), own_turn()
                else:
                    mine, theirs = own_turn(), turn(peer)
            except WorkerError as error:
                lost[name] = error
            else:
                times[name].append((mine, theirs))
    return {**times, **lost}


def _row(
    row: str, peer: str, mine: _Prepared, theirs: _Prepared, times: Sequence[tuple[float, float]]
) -> Row:
    low, ratio, high = quartiles([a / b for a, b in times])
    return Row(
        row, peer, ratio, low, high,
        seconds=(statistics.median(a for a, _ in times), statistics.median(b for _, b in times)),
        state_error=mine.errors.state,
        gradient_error=mine.errors.gradient,
        peer_state_error=theirs.errors.state,
        peer_gradient_error=theirs.errors.gradient,
        evaluations=(mine.evaluations, theirs.evaluations),
        note="; ".join(filter(None, (mine.note, theirs.note))),
    )  # fmt: skip


def quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    """The lower quartile, the median and the upper quartile."""
    if len(values) == 1:
        return values[0], values[0], values[0]
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, middle, high
