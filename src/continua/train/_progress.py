"""The progress of a run, and how it is shown."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

from ._config import Training


@dataclass(frozen=True)
class Progress:
    """Where a run is.

    Attributes:
        stage: what is being done, in a word.
        done: how much of it is done, out of `total`.
        total: of this stage.
        note: the latest measures, in words.
        left: the seconds that the stage still takes, if known.
    """

    stage: str
    done: int
    total: int
    note: str = ""
    left: float | None = None


Watch = Callable[[Progress], None]


def silent(now: Progress) -> None:
    """Show nothing."""


def default_watch() -> Watch:
    """A line of text on stderr, on a terminal and in a notebook; elsewhere nothing."""
    notebook = "ipykernel" in sys.modules
    return TextBar() if notebook or sys.stderr.isatty() else silent


class TextBar:
    """One line on stderr, written over and over: a bar, the note and the time left."""

    def __init__(self, every: float = 0.1):
        self.every, self.at, self.stage = every, 0.0, ""

    def __call__(self, now: Progress) -> None:
        last, clock = now.done == now.total, time.monotonic()
        if clock - self.at < self.every and not last and now.stage == self.stage:
            return
        ended = "\n" if self.stage not in ("", now.stage) else ""
        self.at, self.stage = clock, "" if last else now.stage
        filled = 20 * now.done // max(now.total, 1)
        words = [f"{now.stage} {'#' * filled}{'.' * (20 - filled)} {now.done}/{now.total}"]
        words += [now.note] if now.note else []
        words += [format_time_left(now.left)] if now.left is not None and not last else []
        width = shutil.get_terminal_size().columns - 1
        sys.stderr.write(f"{ended}\r{', '.join(words)[:width]:<{width}}" + ("\n" if last else ""))
        sys.stderr.flush()


def format_time_left(seconds: float) -> str:
    """The time left, in words.

    Example:
        >>> format_time_left(8), format_time_left(200), format_time_left(9000)
        ('8 s left', '3 min left', '2.5 h left')
    """
    if seconds < 100:
        return f"{seconds:.0f} s left"
    return f"{seconds / 60:.0f} min left" if seconds < 6000 else f"{seconds / 3600:.1f} h left"


class TimeLeft:
    """Estimates the time left, if each refinement doubles the cost of a step.

    `start` is the number of epochs that are done already, in fractions.
    """

    def __init__(self, training: Training, start: float):
        cost, self.costs = 1.0, []  # of each epoch
        for epoch in range(training.epochs):
            cost *= 2.0 ** ((epoch in training.refine_epochs) - (epoch in training.project_epochs))
            self.costs.append(cost)
        self.started, self.before = time.monotonic(), self._cost(start)

    def _cost(self, epochs: float) -> float:
        """The cost of so many epochs, in fractions."""
        whole = int(epochs)
        return sum(self.costs[:whole]) + (epochs - whole) * sum(self.costs[whole : whole + 1])

    def __call__(self, epochs: float) -> float | None:
        """The seconds left when so many epochs are done; None before anything is known."""
        done = self._cost(epochs)
        if done <= self.before:
            return None
        pace = (time.monotonic() - self.started) / (done - self.before)
        return pace * (sum(self.costs) - done)
