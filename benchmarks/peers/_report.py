"""What a reader sees of a comparison."""

from __future__ import annotations

import json
from pathlib import Path

from continua import plot
from continua.files import write_whole
from continua.recipes import Page, write_figure
from continua.recipes import write_report as write_html

from ._measure import Row
from ._suite import Bench

PAGE, RESULTS, CHART = "peers.md", "bench.json", "peers.png"


def write_report(bench: Bench, folder: Path) -> list[Path]:
    """Write the numbers, the page and the chart; their paths.

    Args:
        bench: what was measured.
        folder: made if it does not exist.
    """
    folder.mkdir(parents=True, exist_ok=True)
    results, page = folder / RESULTS, folder / PAGE
    write_whole(results, (json.dumps(bench.as_dict(), indent=1) + "\n").encode())
    written = [results, page]
    found = ratios(bench)
    if found:
        write_figure(folder / CHART, plot.ratios(found))
        written.append(folder / CHART)
    text = as_page(bench, chart=bool(found))
    write_whole(page, text.encode())
    title, _, rest = text.removeprefix("# ").partition("\n")
    figures = {folder / CHART: "Our time by that of each library."} if found else {}
    return [*written, write_html(folder, Page(title, "", text=rest, figures=figures))]


def ratios(bench: Bench) -> list[plot.Ratio]:
    """Those rows that are ratios to a library or a loop."""
    return [
        plot.Ratio(row.row, row.peer, row.low or row.ratio, row.ratio, row.high or row.ratio)
        for row in bench.rows
        if row.ratio is not None and row.state_error is not None
    ]


def as_text(bench: Bench) -> str:
    """A table for the terminal."""
    lines = [f"{'row':<27}{'peer':<13}{'ours/peer':>10}{'quartiles':>13}{'error ours/peer':>17}"]
    for row in bench.rows:
        start = f"{row.row:<27}{row.peer:<13}"
        if row.missing:
            lines.append(f"{start}  not run: {row.missing}")
        elif row.exponents is not None:
            told = ", ".join(f"{name} ~ n^{value:.2f}" for name, value in row.exponents.items())
            lines.append(f"{row.row:<27}{told} ({row.note})")
        else:
            assert row.ratio is not None
            lines.append(f"{start:<40}{row.ratio:>10.2f}{spread(row):>13}{both_errors(row):>17}")
    return "\n".join(lines)


def as_page(bench: Bench, chart: bool) -> str:
    """The page of the documentation."""
    versions = ", ".join(f"{name} {version}" for name, version in bench.versions.items())
    asked = bench.options
    chosen = [(what, asked.get(what)) for what in ("rows", "peers")]
    only = "".join(f" --{what} {' '.join(names)}" for what, names in chosen if names)
    lines = [
        "# Beside the peers",
        "",
        f'`make bench ARGS="--suite {asked["suite"]} --rounds {asked["rounds"]} '
        f'--threads {asked["threads"]} --seed {asked["seed"]}{only}"` on {bench.machine}, '
        f"{bench.date}; {versions}.",
        "",
        "A ratio is our time by theirs for one forward and backward, the median of rounds in which "
        "both have their turn, with its quartiles. Errors are those of the gradients, relative to "
        "float64 on a fine grid.",
        "",
    ]
    if chart:
        lines += [f"![Our time by theirs, row by row]({CHART})", ""]
    lines += [
        "| row | peer | ours ÷ peer | quartiles | ms ours / peer | evaluations | "
        "gradient error ours / peer | remark |",
        "|---|---|---|---|---|---|---|---|",
    ]
    lines += [_page_row(row) for row in bench.rows if row.exponents is None]
    growing = [row for row in bench.rows if row.exponents is not None]
    if growing:
        lines += [
            "",
            "How costs grow with one measure of a model (RK4, hat functions, backprop), as the "
            "exponent fitted over four doublings:",
            "",
            "| measure | range | time | memory saved for backward |",
            "|---|---|---|---|",
        ]
        for row in growing:
            assert row.exponents is not None
            told = " | ".join(f"{value:.2f}" for value in row.exponents.values())
            lines.append(f"| {row.row.partition('/')[2]} | {row.note} | {told} |")
    return "\n".join(lines) + "\n"


def _page_row(row: Row) -> str:
    if row.missing:
        return f"| {row.row} | {row.peer} | – | | | | | not run: {row.missing} |"
    assert row.ratio is not None
    assert row.seconds is not None
    ours, theirs = (f"{1e3 * seconds:.3g}" for seconds in row.seconds)
    counts = row.evaluations or (None, None)
    evaluations = "" if counts == (None, None) else " / ".join(str(n or "?") for n in counts)
    ratio = f"**{row.ratio:.2f}**" if row.ratio > 1 else f"{row.ratio:.2f}"
    return (
        f"| {row.row} | {row.peer} | {ratio} | {spread(row)} | {ours} / {theirs} | {evaluations} | "
        f"{both_errors(row)} | {row.note} |"
    )


def spread(row: Row) -> str:
    """The quartiles."""
    return "" if row.low is None or row.high is None else f"{row.low:.2f}–{row.high:.2f}"


def both_errors(row: Row) -> str:
    """Of the gradients."""
    if row.gradient_error is None or row.peer_gradient_error is None:
        return ""
    return f"{row.gradient_error:.0e} / {row.peer_gradient_error:.0e}"
