"""How a command tells where it is."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from continua.train import Progress


@contextlib.contextmanager
def progress() -> Iterator[Callable[[Progress], None]]:
    """Something to hand to a recipe: a bar on a terminal, plain lines elsewhere, on stderr."""
    if not sys.stderr.isatty():
        yield PlainLines()
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar
    from rich.table import Column

    # On a narrow terminal the note is cut, not the numbers.
    with Bar(
        TextColumn("{task.description}"),
        BarColumn(bar_width=None, table_column=Column(ratio=1)),
        MofNCompleteColumn(),
        TextColumn(
            "{task.fields[note]}",
            table_column=Column(ratio=3, no_wrap=True, overflow="ellipsis"),
        ),
        TextColumn("{task.fields[left]}"),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        expand=True,
    ) as bar:
        tasks: dict[str, TaskID] = {}
        pace = Pace()

        def update(now: Progress) -> None:
            if now.stage not in tasks:
                tasks[now.stage] = bar.add_task(now.stage, total=now.total, note="", left="")
            left = pace(now)
            bar.update(tasks[now.stage], completed=now.done, note=now.note, left=left)

        yield update


class Pace:
    """The time that a stage still takes, in words: as the run tells, else by its pace so far."""

    def __init__(self) -> None:
        self.stage, self.began, self.first = "", 0.0, 0

    def __call__(self, now: Progress) -> str:
        from continua.train import format_time_left

        clock_time = time.monotonic()
        if now.stage != self.stage:
            self.stage, self.began, self.first = now.stage, clock_time, now.done
        if now.done >= now.total:
            return ""
        if now.left is not None:
            return format_time_left(now.left)
        done, took = now.done - self.first, clock_time - self.began
        return format_time_left(took / done * (now.total - now.done)) if done and took > 2 else ""


class PlainLines:
    """About ten lines of a stage that has something to say, one of any other, one a minute."""

    def __init__(self) -> None:
        self.told: tuple[str, int] | None = None
        self.at = 0.0
        self.pace = Pace()

    def __call__(self, now: Progress) -> None:
        wanted = {now.total}
        if now.note:
            wanted |= {1, *range(0, now.total, max(now.total // 10, 1))}
        left = self.pace(now)
        here, clock_time = (now.stage, now.done), time.monotonic()
        fresh = here != self.told and now.done in wanted
        slow = bool(now.note) and clock_time - self.at > 60
        if fresh or slow:
            self.told, self.at = here, clock_time
            said = ", ".join(filter(None, (now.note, left)))
            note = f": {said}" if said else ""
            print(f"{now.stage} {now.done}/{now.total}{note}", file=sys.stderr, flush=True)
