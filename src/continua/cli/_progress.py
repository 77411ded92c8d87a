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
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
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
        TimeElapsedColumn(),
        console=Console(stderr=True),
        expand=True,
    ) as bar:
        tasks: dict[str, int] = {}

        def update(now: Progress) -> None:
            if now.stage not in tasks:
                tasks[now.stage] = bar.add_task(now.stage, total=now.total, note="")
            bar.update(tasks[now.stage], completed=now.done, note=now.note)  # type: ignore[arg-type]

        yield update


class PlainLines:
    """About ten lines of a stage that has something to say, one of any other, one a minute."""

    def __init__(self) -> None:
        self.told: tuple[str, int] | None = None
        self.at = 0.0

    def __call__(self, now: Progress) -> None:
        wanted = {now.total}
        if now.note:
            wanted |= {1, *range(0, now.total, max(now.total // 10, 1))}
        here, clock_time = (now.stage, now.done), time.monotonic()
        fresh = here != self.told and now.done in wanted
        slow = bool(now.note) and clock_time - self.at > 60
        if fresh or slow:
            self.told, self.at = here, clock_time
            note = f": {now.note}" if now.note else ""
            print(f"{now.stage} {now.done}/{now.total}{note}", file=sys.stderr, flush=True)
