"""What a sweep found."""

from __future__ import annotations

from continua.measure import Front, Variant

from ._axes import parameter_axis
from ._style import COLOURS, SOURCE, Axes, Figure, figure, styled


@styled
def sweep(front: Front, *, measure: str = "value") -> Figure:
    """The measure of every size over its parameters and, if it was timed, over its latency.

    Sizes than which no other is better are filled and joined by a line.

    Args:
        front: what `continua.sweep` gave.
        measure: what was measured, for the axis.

    Example:
        >>> from torch import nn
        >>> import continua as ct
        >>> block = ct.ODEBlock(nn.Linear(2, 2), ct.PiecewiseConstant(4), ct.Euler(steps=4))
        >>> sizes = ct.sweep(block, lambda model: 1.0)
        >>> sweep(sizes, measure="accuracy, %").axes[0].get_ylabel()
        'accuracy, %'
    """
    timed = [v for v in front.variants if v.milliseconds is not None]
    fig = figure(8.4 if timed else 4.8, 3.6)
    axes = fig.subplots(1, 2 if timed else 1, sharey=True, squeeze=False)[0]
    axes[0].set_ylabel(measure)
    unit = parameter_axis(axes[0], [v.parameters for v in front.variants])
    _points(axes[0], front, {v: v.parameters / unit for v in front.variants})
    if timed:
        _points(axes[1], front, {v: v.milliseconds or 0.0 for v in timed})
        axes[1].set_xlabel("milliseconds")
        axes[1].set_xlim(left=0)
        axes[1].margins(x=0.12)
    return fig


def _points(ax: Axes, front: Front, places: dict[Variant, float]) -> None:
    full = front.variants[0]
    ax.axhline(full.value, color=SOURCE, linewidth=1, linestyle=(0, (2, 2)), zorder=1)
    best = [v for v in places if front.optimal(v)]
    best.sort(key=lambda v: places[v])
    ax.plot([places[v] for v in best], [v.value for v in best], color=COLOURS[1], zorder=2)
    for v, at in places.items():
        fill = COLOURS[1] if front.optimal(v) else "white"
        marker, size = ("*", 14) if v is full else ("o", 7)
        ax.plot(
            [at], [v.value], marker, markersize=size, color=COLOURS[1], markerfacecolor=fill,
            zorder=3,
        )  # fmt: skip
        name = str(v.size) if isinstance(v.size, int) else None
        if name is not None:
            ax.annotate(
                name, (at, v.value), textcoords="offset points", xytext=(7, -11), fontsize=8
            )
    ax.margins(y=0.15)
