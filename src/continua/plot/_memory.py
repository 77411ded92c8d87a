"""What a training step takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

from continua._errors import ArgumentError
from continua.gradient import Gradient
from continua.measure import MemoryReport, readable_bytes

from ._axes import look, shortened
from ._convergence import step_axis
from ._style import COLOURS, DASHES, SOURCE, Axes, Figure, figure, styled

#: points on paper from one name beside a line to the next
LINE = 13

#: inches of the axes of `memory_growth`, nearly
HEIGHT = 3.3


@styled
def memory(report: MemoryReport) -> Figure:
    """What a training step takes with each gradient method, from its parts.

    Weights and optimizer are the same for all; the peak of tensors stands on top of them, divided
    into what is saved for the backward pass and the rest: the gradients, and what comes and goes.

    Args:
        report: what `continua.memory` returned.

    Example:
        >>> from continua.gradient import Backprop
        >>> from continua.measure import MemoryUse
        >>> rows = (MemoryUse(Backprop(), saved=2_000_000, peak=3_000_000),)
        >>> figure = memory(MemoryReport(500_000, 0, 500_000, 1_000_000, "Adam", rows))
        >>> figure.axes[0].get_xlabel()
        'MB'
    """
    if not report.rows:
        raise ArgumentError("the report has no row")
    fixed = report.parameters + report.buffers
    state = report.optimizer or 0
    allowed = [row for row in report.rows if row.refusal is None]
    totals = [fixed + state + row.peak for row in allowed]
    unit, name = _unit(max(totals, default=1))
    fig = figure(7.2, 1.3 + 0.42 * len(report.rows))
    ax = fig.subplots()
    places = [i for i, row in enumerate(report.rows) if row.refusal is None]
    parts = {
        "parameters and buffers": ([fixed] * len(allowed), SOURCE),
        f"state of {report.optimizer_name}": ([state] * len(allowed), COLOURS[4]),
        "saved for backward": ([row.saved for row in allowed], COLOURS[1]),
        "the rest of the peak": ([row.peak - row.saved for row in allowed], COLOURS[5]),
    }
    left = [0.0] * len(allowed)
    for label, (values, colour) in parts.items():
        widths = [value / unit for value in values]
        ax.barh(places, widths, left=left, height=0.62, color=colour, label=label, zorder=2)
        left = [a + b for a, b in zip(left, widths, strict=True)]
    for place, row, end in zip(places, allowed, left, strict=True):
        words = f"{readable_bytes(row.saved)} saved, {readable_bytes(row.peak)} peak"
        ax.annotate(
            words, (end, place), xytext=(4, 0), textcoords="offset points", va="center", fontsize=9
        )
    for i, row in enumerate(report.rows):
        if row.refusal is not None:
            reason = shortened(" ".join(row.refusal.split()), 62)
            ax.annotate(
                f"not possible: {reason}", (0, i), xytext=(4, 0), textcoords="offset points",
                va="center", fontsize=8, color="#666666", parse_math=False,
            )  # fmt: skip
    ax.set_yticks(range(len(report.rows)), [_label(row.gradient) for row in report.rows])
    ax.tick_params(axis="y", length=0)
    ax.set_ylim(len(report.rows) - 0.5, -0.5)
    ax.grid(visible=False, axis="y")
    ax.set_xlim(0, 1.5 * max(totals, default=unit) / unit)  # room for the numbers
    ax.set_xlabel(name)
    fig.legend(loc="outside lower center", ncols=2)
    return fig


@styled
def memory_growth(
    steps: Sequence[int],
    lines: Mapping[str, Sequence[int]],
    *,
    reference: str | None = None,
    ylabel: str = "saved for the backward pass",
) -> Figure:
    """Bytes over the number of steps, one line per method, each with its name at its end.

    Both axes are logarithmic: what grows in proportion to the steps has slope one, and what does
    not grow is level.

    Args:
        steps: at which all lines are measured.
        lines: bytes at each of them, under the name of the method.
        reference: the line that the others are compared with, drawn black.
        ylabel: what they are bytes of.

    Example:
        >>> figure = memory_growth([1, 10], {"Backprop": [4_000, 40_000], "Reversible": [900, 900]})
        >>> [text.get_text() for text in figure.axes[0].texts]
        ['Reversible', 'Backprop']
    """
    if not lines or len(steps) < 2:
        raise ArgumentError("a figure of growth takes at least one line over at least two steps")
    for name, values in lines.items():
        if len(values) != len(steps):
            raise ArgumentError(f"{name!r} has {len(values)} values for {len(steps)} steps")
        if min(values) < 1:
            raise ArgumentError(
                f"{name!r} has {min(values)} bytes, which has no place on a logarithmic axis"
            )
    if reference is not None and reference not in lines:
        raise ArgumentError(f"there is no line {reference!r}; there is: {', '.join(lines)}")
    fig = figure(7.2, HEIGHT + 0.8)
    ax = fig.subplots()
    colours = {}
    for i, (name, values) in enumerate(
        sorted(lines.items(), key=lambda line: line[0] == reference)
    ):
        colour, marker = look(i)
        colours[name] = colour = SOURCE if name == reference else colour
        ax.plot(
            steps, values, color=colour, marker=marker, markersize=4.5,
            linestyle=DASHES[i % len(DASHES)], label=name,
        )  # fmt: skip
    ax.set_yscale("log")
    everything = [value for values in lines.values() for value in values]
    ax.set_ylim(min(everything) / 1.6, max(everything) * 1.6)
    ax.yaxis.set_major_locator(LogLocator())
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _tick(value)))
    ax.yaxis.set_minor_locator(NullLocator())
    ax.yaxis.set_minor_formatter(NullFormatter())
    step_axis(ax, steps)
    ax.set_xlabel("steps")
    ax.set_ylabel(ylabel)
    _name_ends(ax, steps[-1], {name: lines[name][-1] for name in lines}, colours)
    return fig


def _name_ends(ax: Axes, last: int, ends: Mapping[str, int], colours: Mapping[str, str]) -> None:
    """The name of each line beside its end, moved apart where ends are close."""
    to_axes = ax.transScale + ax.transLimits
    order = sorted(ends, key=lambda name: ends[name])
    wanted = [72 * HEIGHT * float(to_axes.transform((last, ends[name]))[1]) for name in order]
    for name, end, place in zip(order, wanted, apart(wanted, LINE), strict=True):
        ax.annotate(
            name, (last, ends[name]), xytext=(9, place - end), textcoords="offset points",
            va="center", fontsize=9, color=colours[name], annotation_clip=False,
        )  # fmt: skip


def apart(places: Sequence[float], least: float) -> list[float]:
    """Sorted places moved as little as needed to be this far from each other.

    Example:
        >>> apart([0, 1, 50], 10)
        [-4.5, 5.5, 50.0]
    """
    groups: list[tuple[float, int]] = []  # centre, and how many stand around it
    for place in places:
        groups.append((float(place), 1))
        while len(groups) > 1:
            (a, m), (b, n) = groups[-2:]
            if b - a >= least * (m + n) / 2:
                break
            groups[-2:] = [((a * m + b * n) / (m + n), m + n)]
    return [
        centre + least * (i - (count - 1) / 2) for centre, count in groups for i in range(count)
    ]


def _label(gradient: Gradient | None) -> str:
    if gradient is None:
        return "as it is"
    values = [str(value) for value in vars(gradient).values() if value is not None]
    return " ".join([type(gradient).__name__, *values])


def _unit(largest: float) -> tuple[int, str]:
    """The unit in which the largest number is short to write."""
    for size, name in ((10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if largest >= 2 * size:
            return size, name
    return 1, "bytes"


def _tick(value: float) -> str:
    size, name = next((u for u in ((10**9, "GB"), (10**6, "MB"), (10**3, "kB")) if value >= u[0]),
                      (1, "B"))  # fmt: skip
    return f"{value / size:,.10g} {name}"
