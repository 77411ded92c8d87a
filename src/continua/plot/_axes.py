"""Axes that several figures share."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence, Sized

from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator
from matplotlib.transforms import ScaledTranslation, Transform

from ._sizes import interval
from ._style import COLOURS, MARKERS, Axes

#: values that differ by more than this factor stand on a logarithmic axis
FAR = 8


def look(i: int) -> tuple[str, str]:
    """Colour and marker of the i-th kind: 36 pairs before one returns."""
    return COLOURS[i % len(COLOURS)], MARKERS[(i + i // len(COLOURS)) % len(MARKERS)]


def in_units(values: Sequence[int]) -> tuple[int, str]:
    """The unit in which counts are short to write, and its name after a comma."""
    if max(values) >= 2_000_000:
        return 1_000_000, ", millions"
    if max(values) >= 2_000:
        return 1_000, ", thousands"
    return 1, ""


def parameter_axis(ax: Axes, counts: Sequence[int]) -> int:
    """Prepare the x axis for these numbers of parameters; gives the unit to divide them by."""
    unit, name = in_units(counts)
    low, high = min(counts) / unit, max(counts) / unit
    if high > FAR * low:
        ax.set_xscale("log")
        plain_log(ax, "x")
        margin = (high / low) ** 0.09
        ax.set_xlim(low / margin, high * margin)
    else:
        margin = 0.12 * (high - low) or 0.5 * high
        ax.set_xlim(low - margin, high + margin)
    ax.set_xlabel(f"parameters{name}")
    return unit


def plain_log(ax: Axes, which: str) -> None:
    """Ticks at 1, 2 and 5 times the powers of ten, written in full."""
    axis = ax.xaxis if which == "x" else ax.yaxis
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axis.set_minor_locator(NullLocator())
    axis.set_minor_formatter(NullFormatter())


def share_axis(ax: Axes, shares: Iterable[float], samples: int, what: str) -> None:
    """Prepare the y axis for these shares with their bars, in percent."""
    ends = [end for share in shares for end in interval(share, samples)]
    low, high = 100 * min(ends), 100 * max(ends)
    # What a sample more or less can do should not fill the figure, so it shows two points.
    if high - low < 2:
        middle = (low + high) / 2
        low, high = middle - 1, middle + 1
    margin = 0.09 * (high - low)
    ax.set_ylim(low - margin, high + margin)
    # No tick where no share can be.
    ax.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
    ax.yaxis.set_major_formatter(
        FuncFormatter(lambda value, _: f"{value:g}" if -1e-9 <= value <= 100 + 1e-9 else "")
    )
    ax.set_ylabel(f"{what}, %")


def bars(share: float, samples: int) -> list[list[float]]:
    """The lengths of an error bar below and above, in percent."""
    low, high = interval(share, samples)
    return [[100 * (share - low)], [100 * (high - share)]]


def spread_out(values: Iterable[int], count: int = 8) -> list[int]:
    """Those of some positive integers that can be written on a log axis, powers of two first."""
    values = sorted(set(values))
    room = math.log2(values[-1] / values[0]) / (count + 1)
    found: list[int] = []
    for value in sorted(values, key=lambda v: (v & (v - 1) != 0, v)):
        if all(abs(math.log2(value / other)) >= room for other in found):
            found.append(value)
    return sorted(found)


def spacing(
    ax: Axes, groups: Mapping[int, Sized], unit: int, *, width: float, most: float
) -> dict[int, float]:
    """How far apart things with equally many parameters can stand, in points on paper.

    Args:
        ax: axes whose x limits are set.
        groups: what stands at each number of parameters.
        unit: what the axis divides parameters by.
        width: the width of the axes in points, nearly.
        most: the largest distance wanted.
    """
    to_axes = ax.transScale + ax.transLimits
    places = {n: width * float(to_axes.transform((n / unit, 1))[0]) for n in groups}
    found = {}
    for n, things in groups.items():
        room = min((abs(places[n] - x) for m, x in places.items() if m != n), default=math.inf)
        # Groups that nearly coincide must overlap; what stands in one is still told apart.
        found[n] = min(most, max(0.85 * room / len(things), 3))
    return found


def shifted(ax: Axes, points: float) -> Transform:
    """The place of data, moved to the right on paper but not in value."""
    return ax.transData + ScaledTranslation(points / 72, 0, ax.figure.dpi_scale_trans)


def shortened(text: str, length: int) -> str:
    """A text, its end cut if it is longer."""
    return text if len(text) <= length else text[: length - 1] + "…"
