"""Accuracy over the order of a basis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.ticker import FixedLocator

from continua._errors import ArgumentError

from ._axes import bars, look, share_axis
from ._memory import apart
from ._style import DASHES, SOURCE, Figure, figure, styled
from ._trial import at_least_one

#: inches of the axes, nearly, and points between two names
HEIGHT, LINE = 3.4, 12.0


@styled
def orders(
    lines: Mapping[str, Mapping[int, float]],
    references: Mapping[str, float] | None = None,
    *,
    samples: int,
    xlabel: str = "order",
    what: str = "accuracy",
) -> Figure:
    """Accuracy over the order of a basis, one line per family, each with its name at its end.

    Bars are Wilson's interval of one standard error. What has no order is a level line.

    Args:
        lines: accuracies from 0 to 1 by order, under the name of the family.
        references: accuracies of models without an order, under their names.
        samples: how many samples they were measured on.
        xlabel: what the order is called.
        what: what the accuracy is of.

    Time Dependence in Non-Autonomous Neural ODEs (Davis et al. 2020), figures 1 and 2.

    Example:
        >>> figure = orders({"T": {1: 0.8, 2: 0.9}}, {"ResNet": 0.85}, samples=100)
        >>> [text.get_text() for text in figure.axes[0].texts]
        ['ResNet', 'T']
    """
    at_least_one("samples", samples)
    level = references or {}
    if not lines or not all(lines.values()):
        raise ArgumentError("a figure of orders takes at least one line, of at least one order")
    for name in level.keys() & lines.keys():
        raise ArgumentError(f"{name!r} is the name of a line and of a reference")
    shares = {name: list(line.values()) for name, line in lines.items()}
    shares |= {name: [value] for name, value in level.items()}
    for name, values in shares.items():
        for value in values:
            if not 0 <= value <= 1:
                raise ArgumentError(f"accuracy is a share from 0 to 1, not {value!r} of {name!r}")
    fig = figure(7.2, HEIGHT + 0.6)
    ax = fig.subplots()
    everything = sorted({order for line in lines.values() for order in line})
    share_axis(ax, [value for values in shares.values() for value in values], samples, what)
    ends: dict[str, tuple[float, str]] = {}
    for i, (name, line) in enumerate(lines.items()):
        colour, marker = look(i)
        at = sorted(line)
        lengths = [bars(line[order], samples) for order in at]
        ax.errorbar(
            at,
            [100 * line[order] for order in at],
            yerr=[[e[side][0] for e in lengths] for side in (0, 1)],
            color=colour, marker=marker, markersize=5.5, linestyle=DASHES[i % len(DASHES)],
            elinewidth=1, ecolor=(colour, 0.5), label=name,
        )  # fmt: skip
        ends[name] = (100 * line[at[-1]], colour)
    for i, (name, value) in enumerate(level.items()):
        ax.axhline(
            100 * value, color=SOURCE, linewidth=1.2, linestyle=DASHES[(i + 1) % len(DASHES)],
            label=name, zorder=1,
        )  # fmt: skip
        ends[name] = (100 * value, SOURCE)
    margin = max(0.04 * (everything[-1] - everything[0]), 0.2)
    ax.set_xlim(everything[0] - margin, everything[-1] + margin)
    ax.xaxis.set_major_locator(FixedLocator(ticks(everything)))
    ax.set_xlabel(xlabel)
    bottom, top = ax.get_ylim()
    names = sorted(ends, key=lambda name: ends[name][0])
    wanted = [72 * HEIGHT * (ends[name][0] - bottom) / (top - bottom) for name in names]
    for name, end, place in zip(names, wanted, apart(wanted, LINE), strict=True):
        value, colour = ends[name]
        ax.annotate(
            name, (ax.get_xlim()[1], value), xytext=(6, place - end), textcoords="offset points",
            va="center", fontsize=9, color=colour, annotation_clip=False,
        )  # fmt: skip
    return fig


def ticks(values: Sequence[int], most: int = 12) -> list[int]:
    """Those of some sorted numbers that can be written side by side.

    Example:
        >>> ticks([1, 2, 3, 4, 5], most=3)
        [1, 3, 5]
    """
    return list(values[:: -(-len(values) // most)])
