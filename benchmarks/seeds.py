"""Write docs/results/seeds.md: studies with several seeds, as mean ± standard deviation.

    continua reproduce dissecting/reflection --seed 1 --run-dir runs/reflection-1
    python benchmarks/seeds.py runs/reflection-1 ...

Keeps the report of each folder in benchmarks/reports, and writes the page from all reports there.
"""

from __future__ import annotations

import re
import statistics
import sys
from itertools import groupby
from pathlib import Path

REPORTS = Path(__file__).parent / "reports"
PAGE = Path(__file__).parents[1] / "docs" / "results" / "seeds.md"
SEED = r"--seed (\d+)"
NUMBER = re.compile(r"(?<![\w.])[-+−]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?")
HEAD = """# Several seeds

Studies at laptop scale unless stated, most with several seeds: mean ± standard deviation over the
seeds; a number without ± is the same for all of them. Two cores shared with other work, one thread
per run, x86-64.
This page is written by `python benchmarks/seeds.py` from the reports in `benchmarks/reports`; a
test compares the two. The [pages of the papers](index.md) explain the studies.
"""


def keep(folder: Path) -> None:
    """Copy the report of a run."""
    text = (folder / "report.md").read_text("utf-8")
    name = said(text, r"^# (.+)$").replace("/", "-")
    (REPORTS / f"{name}-{said(text, SEED)}.md").write_text(text, "utf-8")


def said(text: str, pattern: str) -> str:
    found = re.search(pattern, text, flags=re.M)
    if found is None:
        raise LookupError(f"a report without {pattern!r}: {text[:80]!r}")
    return found[1]


def page() -> str:
    """The page as it should be."""
    texts = [path.read_text("utf-8") for path in sorted(REPORTS.glob("*.md"))]
    return HEAD + "".join(
        section(name, sorted(each, key=lambda text: int(said(text, SEED))))
        for name, each in groupby(texts, lambda text: said(text, r"^# (.+)$"))
    )


def section(name: str, texts: list[str]) -> str:
    """One study: its command, and its tables; without a table, its sentences."""
    seeds = ", ".join(said(text, SEED) for text in texts)
    scale, torch = (said(texts[0], p) for p in (r"Scale (\w+)", r"torch ([\d.]+\d)"))
    dates = " and ".join(sorted({said(text, r"(\d{4}-\d\d-\d\d)") for text in texts}))
    parts = [told(text) for text in texts]
    merged = [merge(list(same), seeds.split(", ")) for same in zip(*parts, strict=True)]
    label = f"seed {seeds}" if len(texts) == 1 else f"seeds {seeds}"
    title = name.partition("/")[2].replace("-", " ").capitalize()
    return "\n\n".join(
        [
            f"\n## {title}",
            f"`continua reproduce {name}`, {scale} scale, {label}; torch {torch}, {dates}.",
            *merged,
        ]
    ) + "\n"  # fmt: skip


def told(text: str) -> list[str]:
    """The tables of a report, each with the line that announces it; without a table, the rest."""
    parts = text.strip().split("\n\n")[2:]
    tables = [
        part
        for part, after in zip(parts, [*parts[1:], ""], strict=True)
        if part.startswith("|") or (part.endswith(":") and after.startswith("|"))
    ]
    return tables or parts


def merge(texts: list[str], seeds: list[str]) -> str:
    """Texts that differ in numbers only, as one; others one after the other."""
    if len({NUMBER.sub("0", text) for text in texts}) > 1:
        return "\n".join(f"- Seed {seed}: {text}" for seed, text in zip(seeds, texts, strict=True))
    columns = zip(*(NUMBER.findall(text) for text in texts), strict=True)
    numbers = iter([spread(column) for column in columns])
    return NUMBER.sub(lambda _: next(numbers), texts[0])


def spread(found: tuple[str, ...]) -> str:
    """Mean ± standard deviation, with the digits of the numbers."""
    if len(set(found)) == 1:
        return found[0]
    values = [float(text.replace(",", "").replace("−", "-")) for text in found]
    mean, deviation = statistics.fmean(values), statistics.stdev(values)
    if any("e" in text for text in found) or max(map(abs, values)) < 0.01:
        return f"{mean:.2g} ± {deviation:.1g}"
    digits = max(1, *(len(text.partition(".")[2]) for text in found))
    return f"{mean:,.{digits}f} ± {deviation:,.{digits}f}"


if __name__ == "__main__":
    for folder in sys.argv[1:]:
        keep(Path(folder))
    PAGE.write_text(page(), "utf-8")
    print(f"{PAGE.name} has {len(list(REPORTS.glob('*.md')))} reports.")
