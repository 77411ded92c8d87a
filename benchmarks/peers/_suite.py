"""The whole comparison."""

from __future__ import annotations

import contextlib
import difflib
import os
import platform
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import date
from pathlib import Path
from typing import Any, Literal

import pooch
import torch

import continua as ct

from ._alone import ALONE
from ._environments import PEERS, interpreter
from ._measure import OURS, Row, compare
from ._problems import problems
from ._workers import Worker, WorkerError

# Rows that take minutes by themselves.
LONG = ("fixed-large", "conv-adaptive")

LOOP = "loop"


@dataclass(frozen=True)
class BenchOptions:
    """What to measure."""

    suite: Literal["quick", "full"] = "quick"
    """quick: few rounds, without the rows that take minutes; full: all of it."""

    rows: tuple[str, ...] = ()
    """Only these rows, such as fixed-small galerkin; all by default."""

    peers: tuple[str, ...] = ()
    """Only these peers; all by default. `loop` is the one written by hand."""

    rounds: int | None = None
    """How often each side has its turn; 5 in the quick suite, 15 in the full one."""

    threads: int = 1
    """Processor threads of each side."""

    seed: int = 0
    """Of weights and inputs."""

    compile: bool = False
    """Take compiled steps on our side."""

    processor: bool = False
    """Count the least processor time of each turn, for a machine that is busy with other work."""

    environments: Path | None = None
    """The folder for the peers' environments; by default in the user's cache."""

    run_dir: Path | None = None
    """The folder to write bench.json, the page and the chart to; runs/bench by default."""


@dataclass(frozen=True)
class Bench:
    """What was measured, and where.

    Args:
        machine: what it is.
        versions: of everything that took part.
        date: when.
        options: how it was asked for.
        rows: one for each row and peer.
    """

    machine: str
    versions: dict[str, str]
    date: str
    options: dict[str, Any]
    rows: list[Row] = field(default_factory=list)

    @property
    def failed(self) -> bool:
        """Whether our own side could not solve a row."""
        return any(row.missing.startswith(OURS) for row in self.rows)

    def as_dict(self) -> dict[str, Any]:
        """As JSON holds it."""
        return asdict(self)


def run_bench(options: BenchOptions, tell: Callable[[str], None]) -> Bench:
    """Measure every row beside every peer.

    Args:
        options: what to measure.
        tell: is told what is being done.
    """
    made = problems(options.seed)
    check_options(options, [*made, *ALONE])
    rounds = rounds_of(options)
    chosen = [row for row in made if is_wanted(options, row)]
    before = torch.get_num_threads()
    rows: list[Row] = []
    with contextlib.ExitStack() as stack:
        torch.set_num_threads(options.threads)
        stack.callback(torch.set_num_threads, before)
        versions = {"continua": ct.__version__, "torch": torch.__version__}
        if chosen:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            ours = stack.enter_context(Worker("continua", threads=options.threads))
            peers = _workers(options, stack, tell)
            for row in chosen:
                problem = made[row]()
                problem.settings["compile"] = options.compile
                rows += compare(problem, ours, peers, rounds, folder, tell, options.processor)
            versions |= {
                p.side: v for p in peers.values() if isinstance(p, Worker) and (v := p.version)
            }
        for name, measure in ALONE.items():
            if is_wanted(options, name):
                tell(name)
                rows += measure(rounds)
    asked = {
        "suite": options.suite, "rounds": rounds, "threads": options.threads,
        "seed": options.seed, "rows": list(options.rows), "peers": list(options.peers),
        "compile": options.compile, "processor": options.processor,
    }  # fmt: skip
    return Bench(machine(), versions, str(date.today()), asked, rows)


def check_options(options: BenchOptions, rows: Sequence[str]) -> None:
    """Refuse what cannot be measured; `rows` are those that there are."""
    families = list(dict.fromkeys(row.split("/")[0] for row in rows))
    _require_known("row", options.rows, [*families, *rows])
    _require_known("peer", options.peers, [LOOP, *(peer.side for peer in PEERS)])
    for name, value in (("rounds", options.rounds), ("threads", options.threads)):
        if value is not None and value < 1:
            raise ct.ArgumentError(f"{name} is at least 1, not {value}")


def is_wanted(options: BenchOptions, row: str) -> bool:
    """Whether the options ask for a row."""
    family = row.split("/")[0]
    if options.rows:
        return row in options.rows or family in options.rows
    return options.suite == "full" or family not in LONG


def rounds_of(options: BenchOptions) -> int:
    """How often each side has its turn."""
    return options.rounds or (5 if options.suite == "quick" else 15)


def machine() -> str:
    """What this machine is, without its name."""
    return f"{os.cpu_count()} cores, {platform.machine()}, {platform.system()}"


def _workers(
    options: BenchOptions, stack: contextlib.ExitStack, tell: Callable[[str], None]
) -> dict[str, Worker | WorkerError]:
    home = options.environments or Path(pooch.os_cache("continua")) / "bench"
    workers: dict[str, Worker | WorkerError] = {}
    if not options.peers or LOOP in options.peers:
        workers[LOOP] = stack.enter_context(Worker(LOOP, threads=options.threads))
    for peer in PEERS:
        if not options.peers or peer.side in options.peers:
            try:
                python = interpreter(peer, home, tell)
                workers[peer.side] = stack.enter_context(
                    Worker(peer.side, python, threads=options.threads)
                )
            except WorkerError as error:
                workers[peer.side] = error
    return workers


def _require_known(what: str, given: Sequence[str], known: Sequence[str]) -> None:
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"there is: {', '.join(known)}"
            raise ct.ArgumentError(f"there is no {what} {name!r}; {hint}")
