"""Accuracy over size, of families of models over several seeds."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from continua._errors import ArgumentError

from ._axes import look, parameter_axis, share_axis
from ._sizes import Measurement
from ._style import Figure, figure, styled


@styled
def families(
    series: Mapping[str, Sequence[Measurement]], *, samples: int, lowest: float = 0.0
) -> Figure:
    """Accuracy over the number of parameters: a line per family, every seed a small point.

    Args:
        series: under the name of a family its models, one per size and seed.
        samples: that each accuracy was measured on.
        lowest: the accuracy at which the axis ends; a mean below it is written there.

    Example:
        >>> one = [Measurement("elastic", k, 100 * k, 0.9 + 0.01 * k) for k in (4, 2, 1)]
        >>> families({"one elastic run": one}, samples=1000).axes[0].get_ylabel()
        'test accuracy, %'
    """
    everything = [m for models in series.values() for m in models]
    if not everything:
        raise ArgumentError("no models; give at least one family with one model")
    fig = figure(6.4, 4.0)
    ax = fig.subplots()
    unit = parameter_axis(ax, [m.parameters for m in everything])
    shown = [m.accuracy for m in everything if m.accuracy >= lowest] or [lowest]
    share_axis(ax, shown, samples, "test accuracy")
    for i, (name, models) in enumerate(series.items()):
        colour, marker = look(i)
        groups: dict[int, list[float]] = {}
        for m in sorted(models, key=lambda m: m.parameters):
            groups.setdefault(m.parameters, []).append(100 * m.accuracy)
        counts = [count / unit for count in groups]
        means = [statistics.mean(values) for values in groups.values()]
        ax.plot(counts, means, color=colour, marker=marker, label=name, zorder=3)
        for count, values in zip(counts, groups.values(), strict=True):
            seeds = [count] * len(values)
            ax.plot(seeds, values, ".", color=colour, markersize=5, alpha=0.5, zorder=2)
            if statistics.mean(values) < 100 * lowest:
                ax.annotate(
                    f"↓ {statistics.mean(values):.1f}", (count, 0), (4, 4),
                    xycoords=("data", "axes fraction"), textcoords="offset points",
                    fontsize=8, color=colour,
                )  # fmt: skip
    for m in {m.size: m for m in everything}.values():
        ax.annotate(
            f"K={m.size}", (m.parameters / unit, 1), xycoords=("data", "axes fraction"),
            ha="center", va="bottom", fontsize=8, color="#666666",
        )  # fmt: skip
    fig.legend(loc="outside lower center", ncols=2, fontsize=9)
    return fig
