"""Accuracy over size."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.ticker import MaxNLocator
from matplotlib.transforms import ScaledTranslation

from continua._errors import ArgumentError

from ._style import COLOURS, MARKERS, SOURCE, Axes, Figure, figure, styled

#: points on paper between two series at the same size
APART = 8


@dataclass(frozen=True)
class Measurement:
    """One model: how large it is and how well it does.

    Attributes:
        series: what it shares with other models, a family of bases and a scheme for instance;
            each series gets its own marker.
        size: the number of basis functions, K.
        parameters: how many scalars it has.
        accuracy: the share of images it gets right, from 0 to 1.
    """

    series: str
    size: int
    parameters: int
    accuracy: float


@styled
def sizes(source: Measurement, others: Sequence[Measurement], *, images: int) -> Figure:
    r"""Accuracy over the number of parameters, one marker per series, the source marked.

    The bars are Wilson's interval of one standard error: with n images and accuracy p,

    .. math:: \frac{p + \frac{1}{2n} \pm \sqrt{\frac{p(1-p)}{n} + \frac{1}{4n^2}}}{1 + \frac{1}{n}}

    Models of the same size stand side by side, so that none hides another.

    Args:
        source: the trained model.
        others: the models made from it.
        images: how many images the accuracy was measured on.

    Example:
        >>> source = Measurement("8 buckets, trained", 8, 1000, 0.99)
        >>> half = Measurement("buckets", 4, 500, 0.98)
        >>> sizes(source, [half], images=450).axes[0].get_xlabel()
        'parameters, thousands'
    """
    for m in (source, *others):
        if not 0 <= m.accuracy <= 1:
            raise ArgumentError(f"accuracy is a share from 0 to 1, not {m.accuracy!r}")
    series = list(dict.fromkeys(m.series for m in others))
    groups: dict[int, list[Measurement]] = {}
    for m in others:
        groups.setdefault(m.parameters, []).append(m)

    fig = figure(7.2, 4.4)
    ax = fig.subplots()
    ax.axhline(100 * source.accuracy, color=SOURCE, linewidth=1, linestyle=(0, (2, 2)), zorder=1)
    point(ax, source, images, color=SOURCE, marker="*", markersize=15)
    for group in groups.values():
        for j, m in enumerate(group):
            i = series.index(m.series)
            point(
                ax,
                m,
                images,
                shift=APART * (j - (len(group) - 1) / 2),
                color=COLOURS[i % len(COLOURS)],
                marker=MARKERS[i % len(MARKERS)],
                markersize=7,
            )
    ax.set_xlabel("parameters, thousands")
    ax.set_ylabel("held-out accuracy, %")
    ax.set_title(
        f"{images:,} held-out images (one is {100 / images:.2f} points); bars: one standard error",
        fontsize=9,
    )
    ax.grid(visible=False, axis="x")
    ax.set_xlim(0, 1.06 * max(m.parameters for m in (source, *others)) / 1000)
    # What an image more or less can do should not fill the figure, so it shows two points.
    lowest = min(interval(m.accuracy, images)[0] for m in (source, *others))
    bottom = min(100 * lowest, 100 * source.accuracy - 2)
    ax.set_ylim(bottom - 0.05 * (100 - bottom), 100 + 0.15 * (100 - bottom))
    ax.yaxis.set_major_locator(MaxNLocator(6, prune="upper"))

    # Sizes above the parameters they make, each once.
    ticks = {m.size: m.parameters / 1000 for m in (source, *others)}
    above = ax.secondary_xaxis("top")
    above.set_xticks(list(ticks.values()), [f"K={size}" for size in ticks])
    above.tick_params(length=0, pad=-14)
    above.spines["top"].set_visible(False)
    handles = dict(zip(*reversed(ax.get_legend_handles_labels()), strict=True))  # by label
    shown = [source.series, *series]
    fig.legend([handles[n] for n in shown], shown, loc="outside lower center", ncols=2)
    return fig


def point(ax: Axes, m: Measurement, images: int, *, shift: float = 0.0, **look: Any) -> None:
    """One model and its standard error, shifted on paper but not in value."""
    low, high = interval(m.accuracy, images)
    ax.errorbar(
        [m.parameters / 1000],
        [100 * m.accuracy],
        yerr=[[100 * (m.accuracy - low)], [100 * (high - m.accuracy)]],
        linestyle="none",
        elinewidth=1.2,
        label=m.series,
        transform=ax.transData + ScaledTranslation(shift / 72, 0, ax.figure.dpi_scale_trans),
        **look,
    )


def interval(share: float, count: int) -> tuple[float, float]:
    """Wilson's interval of one standard error around a share of `count` trials."""
    centre = share + 1 / (2 * count)
    spread = math.sqrt(share * (1 - share) / count + 1 / (4 * count**2))
    whole = 1 + 1 / count
    # Rounding may push an end past the share itself, where the share is 0 or 1.
    return min((centre - spread) / whole, share), max((centre + spread) / whole, share)
