"""Numbers from the pages in docs/results, and what they say of a claim."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

RESULTS = Path(__file__).parents[2] / "docs" / "results"
PAGE = RESULTS / "claims.md"
HOLDS, PART, NOT, UNTESTED = "holds", "holds in part", "does not hold here", "not tested"
#: a ranking by accuracy is judged if our best model reaches this share of the paper's accuracy
REACH = 0.9


# -- what the pages say ----------------------------------------------------------------------------


def section(where: str) -> str:
    """The text below a heading, as in `nanode.md#memory`; without one, before the first."""
    page, _, anchor = where.partition("#")
    parts = re.split(r"^##+ (.*)$", (RESULTS / page).read_text("utf-8"), flags=re.M)
    texts = {"": parts[0]} | {slug(h): text for h, text in zip(parts[1::2], parts[2::2])}  # noqa: B905
    return texts[anchor]


def slug(heading: str) -> str:
    """The anchor of a heading."""
    return re.sub(r"[^\w-]+", "-", heading.lower().replace(":", "")).strip("-")


def cell(where: str, row: str, column: str, skip: int = 0) -> str:
    """What a table says in the first row that begins like this, in a column.

    Args:
        where: the section.
        row: how it begins.
        column: its head.
        skip: so many such rows before it.
    """
    head: list[str] = []
    found = []
    for line in section(where).splitlines():
        cells = [part.strip().replace("`", "") for part in line.strip("|").split("|")]
        if not line.startswith("|"):
            head = []
        elif not head:
            head = cells
        elif cells[0].startswith(row) and column in head:
            found.append(cells[head.index(column)])
    if len(found) <= skip:
        raise LookupError(f"{where} has no row {row!r} with a column {column!r}")
    return found[skip]


def number(text: str) -> float:
    """The first number in a text."""
    found = re.search(r"[-−]?\d[\d,]*(\.\d+)?(e-?\d+)?", text)
    if found is None:
        raise LookupError(f"{text!r} holds no number")
    return float(found[0].replace(",", "").replace("−", "-"))


def said(where: str, *patterns: str) -> tuple[float, ...]:
    """The numbers in the groups of patterns, in the running text of a section."""
    text, numbers = " ".join(section(where).split()), []
    for pattern in patterns:
        found = re.search(pattern, text)
        if found is None:
            raise LookupError(f"{where} does not say {pattern!r}")
        numbers += [number(group) for group in found.groups()]
    return tuple(numbers)


def every(where: str, pattern: str) -> list[tuple[float, ...]]:
    """The numbers in the groups of a pattern, wherever it is in a section: once, or per seed."""
    text = " ".join(section(where).split())
    found = [tuple(map(number, groups.groups())) for groups in re.finditer(pattern, text)]
    if not found:
        raise LookupError(f"{where} does not say {pattern!r}")
    return found


def seeds(where: str) -> str:
    """The seeds of a run, from its section, the table of all results or the head of its page."""
    if where.startswith("seeds.md"):
        found = re.search(r"seeds? ([\d, ]+\d|\d)", section(where))
        assert found is not None
        return found[1]
    for line in (RESULTS / "index.md").read_text("utf-8").splitlines():
        cells = [part.strip() for part in line.strip("|").split("|")]
        if f"]({where})" in line and len(cells) == 5:
            return cells[2]
    (seed,) = said(where.partition("#")[0], r"seed (\d+)")
    return f"{seed:g}"


# -- claims ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Claim:
    """One line.

    Attributes:
        text: what the paper claims.
        theirs: its number.
        ours: our number and the verdict; None if it was not run.
        where: the section with the run.
        budget: of our training over the paper's.
    """

    text: str
    theirs: str
    ours: Callable[[], tuple[str, str]] | None = None
    where: str = ""
    budget: Callable[[], float] | str = "no training"

    def line(self) -> str:
        if self.ours is None:
            return f"| {self.text} | {self.theirs} | not run | – | – | {UNTESTED} | |"
        ours, verdict = self.ours()
        ratio = self.budget if isinstance(self.budget, str) else f"{self.budget():.2g}"
        link = f"[run]({self.where})"
        cells = (self.text, self.theirs, ours, ratio, seeds(self.where), verdict, link)
        return f"| {' | '.join(cells)} |"


def percents(*values: float) -> str:
    return ", ".join(f"{value:.2f} %" for value in values)


def kept(before: float, after: float) -> tuple[str, str]:
    """A network made smaller: within a point it holds, within three in part."""
    loss = round(before - after, 2)
    verdict = HOLDS if loss <= 1 else PART if loss <= 3 else NOT
    return f"{before:.2f} → {after:.2f} %", verdict


def level(ours: float, theirs: float, share: float) -> tuple[str, str]:
    """An accuracy: within a point it holds; with less than half the budget it is not judged."""
    if ours >= theirs - 1:
        return percents(ours), HOLDS
    return percents(ours), NOT if share >= 0.5 else f"{UNTESTED} (budget)"


def ranking(shown: str, holds: bool, best: float, paper: float) -> tuple[str, str]:
    """An order of accuracies, judged if the best of ours comes close to the paper's best."""
    if best < REACH * paper:
        order = "the same" if holds else "another"
        return shown, f"{UNTESTED} (budget: {best / paper:.2f} of the accuracy; {order} order)"
    return shown, HOLDS if holds else NOT


def fact(shown: str, holds: bool) -> tuple[str, str]:
    return shown, HOLDS if holds else NOT
