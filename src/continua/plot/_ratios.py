"""How long we take beside others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from continua._errors import ArgumentError

from ._axes import look
from ._style import SOURCE, Figure, figure, styled


class Ratio(NamedTuple):
    """A time relative to another's: the median, and the quartiles around it."""

    row: str
    peer: str
    low: float
    ratio: float
    high: float


@styled
def ratios(found: Sequence[Ratio]) -> Figure:
    """Times relative to those of others, a line for each row and a mark for each other.

    The axis is logarithmic: marks left of the line at one are faster.

    Args:
        found: in the order in which they are drawn; rows of one name share a line.

    Example:
        >>> figure = ratios([Ratio("fixed", "torchdiffeq", 0.3, 0.4, 0.5)])
        >>> [label.get_text() for label in figure.axes[0].get_yticklabels()]
        ['fixed']
    """
    if not found:
        raise ArgumentError("there is no ratio to draw")
    for one in found:
        if not 0 < one.low <= one.ratio <= one.high:
            raise ArgumentError(
                f"{one.row} beside {one.peer}: a ratio is positive and lies between its quartiles, "
                f"not {one.low:g}, {one.ratio:g}, {one.high:g}"
            )
    names = list(dict.fromkeys(one.row for one in found))
    peers = list(dict.fromkeys(one.peer for one in found))
    fig = figure(7.2, 1.4 + 0.32 * len(names))
    ax = fig.subplots()
    for i, peer in enumerate(peers):
        colour, marker = look(i)
        mine = [one for one in found if one.peer == peer]
        # Marks of one line stand a little apart, so that none hides another.
        places = [names.index(one.row) + 0.5 * ((i + 0.5) / len(peers) - 0.5) for one in mine]
        middles = [one.ratio for one in mine]
        spread = (
            [one.ratio - one.low for one in mine],
            [one.high - one.ratio for one in mine],
        )
        ax.errorbar(
            middles, places, xerr=spread, fmt=marker, color=colour, markersize=5,
            elinewidth=1, label=peer, zorder=3,
        )  # fmt: skip
    ax.axvline(1.0, color=SOURCE, linewidth=1)
    ax.set_xscale("log")
    ax.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ax.xaxis.set_minor_formatter(NullFormatter())
    ax.set_yticks(range(len(names)), names)
    ax.tick_params(axis="y", length=0)
    ax.set_ylim(len(names) - 0.5, -0.5)
    ax.set_xlabel("our time ÷ theirs, left of 1 is faster")
    fig.legend(loc="outside lower center", ncols=min(len(peers), 6))
    return fig
