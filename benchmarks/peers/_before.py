"""The current sources beside those of an earlier commit, measured in turns."""

from __future__ import annotations

import contextlib
import statistics
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import continua as ct

from ._measure import Row, compare
from ._problems import problems
from ._report import spread
from ._suite import BenchOptions, check_options, is_wanted, rounds_of
from ._workers import SOURCE, Worker


@dataclass(frozen=True)
class Before:
    """What was measured.

    Args:
        revision: the earlier commit.
        rows: their ratios are the time now by the time before.
    """

    revision: str
    rows: list[Row]

    @property
    def median(self) -> float | None:
        """Of the ratios of all rows."""
        found = [row.ratio for row in self.rows if row.ratio is not None]
        return statistics.median(found) if found else None

    @property
    def failed(self) -> bool:
        """Whether a row could not be measured."""
        return any(row.missing for row in self.rows)

    def as_dict(self) -> dict[str, Any]:
        """As JSON holds it."""
        return asdict(self) | {"median": self.median}

    def __str__(self) -> str:
        lines = [f"{'row':<27}{'after/before':>13}{'quartiles':>13}{'ms after/before':>20}"]
        for row in self.rows:
            if row.ratio is None or row.seconds is None:
                lines.append(f"{row.row:<27}  not run: {row.missing}")
            else:
                times = " / ".join(f"{1e3 * seconds:.3g}" for seconds in row.seconds)
                lines.append(f"{row.row:<27}{row.ratio:>13.3f}{spread(row):>13}{times:>20}")
        if self.median is not None:
            lines.append(f"{'median of rows':<27}{self.median:>13.3f}")
        return "\n".join(lines)


def run_before(revision: str, options: BenchOptions, tell: Callable[[str], None]) -> Before:
    """Measure every row with the current sources and with those of a commit.

    Our side of the current tree runs with both, so it may call only what both offer.

    Args:
        revision: a commit, as git names it.
        options: what to measure.
        tell: is told what is being done.
    """
    made = problems(options.seed)
    check_options(options, list(made))
    if options.peers:
        raise ct.ArgumentError("peers take no part in --before; leave --peers out")
    rows: list[Row] = []
    with (
        tempfile.TemporaryDirectory() as folder,
        sources(revision) as old,
        Worker("continua", threads=options.threads, source=old) as before,
        Worker("continua", threads=options.threads, source=SOURCE) as after,
    ):
        for row in made:
            if is_wanted(options, row):
                peers = {revision: before}
                rows += compare(made[row](), after, peers, rounds_of(options), Path(folder), tell)
    return Before(revision, rows)


@contextlib.contextmanager
def sources(revision: str) -> Iterator[Path]:
    """The `src` of a commit, in a temporary worktree."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        _git("worktree", "add", "--quiet", "--detach", str(tree), revision)
        try:
            yield tree / "src"
        finally:
            _git("worktree", "remove", "--force", str(tree))


def _git(*arguments: str) -> None:
    command = ["git", "-C", str(SOURCE.parent), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["it said nothing"]
        raise ct.ArgumentError(f"git {' '.join(arguments)} failed: {lines[-1]}")
