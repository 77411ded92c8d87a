"""Losses side by side: what a choice does to several families of models."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from continua._errors import ArgumentError
from continua._values import whole_number

from ._axes import plain_log
from ._history import checked, draw
from ._style import Figure, figure, styled


@styled
def loss_panels(
    panels: Mapping[str, Mapping[str, Sequence[float]]],
    *,
    columns: int = 3,
    xlabel: str = "step",
    ylabel: str = "loss",
) -> Figure:
    """Losses over training in several panels on common logarithmic axes.

    Args:
        panels: under the title of each panel its histories, under their names.
        columns: how many panels stand beside each other.
        xlabel: what the losses were measured after.
        ylabel: what they are.

    Example:
        >>> falls = {"K = 2": [1.0, 0.5], "K = 4": [1.0, 0.7]}
        >>> figure = loss_panels({"buckets, plain": falls, "buckets, projected": falls})
        >>> [ax.get_title(loc="left") for ax in figure.axes]
        ['buckets, plain', 'buckets, projected']
    """
    if not panels:
        raise ArgumentError("no panels; give at least one")
    columns = whole_number("columns", columns)
    found = {
        title: checked(histories, positive="a loss on a logarithmic axis")
        for title, histories in panels.items()
    }
    across = min(columns, len(found))
    rows = math.ceil(len(found) / across)
    fig = figure(0.6 + 2.45 * across, 0.5 + 2.3 * rows)
    grid = fig.subplots(rows, across, sharex=True, sharey=True, squeeze=False)
    shown = list(grid.flat)[: len(found)]
    for ax in list(grid.flat)[len(found) :]:
        ax.remove()
    values = [v for part in found.values() for h in part.values() for v in h if math.isfinite(v)]
    for i, (ax, (title, histories)) in enumerate(zip(shown, found.items(), strict=True)):
        draw(ax, histories)
        ax.set_title(title)
        ax.legend(loc="best", fontsize=8, labelspacing=0.25, handlelength=2.4)
        lowest = i + across >= len(found)
        ax.tick_params(labelbottom=lowest)
        ax.set_xlabel(xlabel if lowest else "")
        ax.set_ylabel(ylabel if i % across == 0 else "")
    shown[0].set_yscale("log")
    if max(values) < 100 * min(values):
        plain_log(shown[0], "y")
    return fig
