"""What the command says: lines that fit the terminal, numbers in words, exit codes."""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
from typing import TextIO

DONE = 0
#: something was measured and found wrong
FAILED = 1


def say(text: str, to: TextIO | None = None) -> None:
    """Print a sentence: on a terminal in lines that end between words, elsewhere in one line."""
    out = sys.stdout if to is None else to
    if out.isatty():
        text = textwrap.fill(text, _width(), break_long_words=False, break_on_hyphens=False)
    print(text, file=out)


def tabulate(table: str, to: TextIO | None = None) -> None:
    """Print a table; a row that does not fit into the terminal takes a line for each cell."""
    out = sys.stdout if to is None else to
    for line in table.splitlines():
        fits = not out.isatty() or len(line) <= _width()
        print(line if fits else "\n    ".join(re.split(" {2,}", line.strip())), file=out)


def _width() -> int:
    return max(shutil.get_terminal_size().columns - 1, 20)


def percent(share: float) -> str:
    """A share in percent."""
    return f"{100 * share:.2f} %"


def clock(seconds: float) -> str:
    """A duration in words."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
