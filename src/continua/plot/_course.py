"""A training from its first epoch to its last."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.ticker import MaxNLocator

from continua._errors import ArgumentError

from ._axes import FAR, plain_log
from ._style import COLOURS, DASHES, SOURCE, Figure, figure, styled

PARTS = ("train", "validation")


@styled
def course(epochs: Sequence[Mapping[str, Any]]) -> Figure:
    """What was measured after each epoch, a panel for each measure.

    A vertical line stands where the number of basis functions changed, and a gap where nothing
    was measured.

    Args:
        epochs: the lines of `metrics.jsonl`: `epoch`, `functions`, and under `train` and
            `validation` their measures.

    Example:
        >>> lines = [
        ...     {"epoch": 1, "functions": 1, "train": {"loss": 2.0}, "validation": {"loss": 2.1}},
        ...     {"epoch": 2, "functions": 2, "train": {"loss": 1.0}, "validation": {"loss": 1.3}},
        ... ]
        >>> [axes.get_ylabel() for axes in course(lines).axes]
        ['loss']
    """
    if not epochs:
        raise ArgumentError("a course has at least one epoch")
    last = epochs[-1]
    names = [n for n in last["train"] if n in last.get("validation", {n: 0})]
    if not names:
        raise ArgumentError("the last epoch has no measure of the training")
    fig = figure(6.4, 0.9 + 2.1 * len(names))
    panels = fig.subplots(len(names), 1, sharex=True, squeeze=False)[:, 0]
    x = [line["epoch"] for line in epochs]
    for ax, name in zip(panels, names, strict=True):
        for i, part in enumerate(PARTS):
            y = [float(line.get(part, {}).get(name, math.nan)) for line in epochs]
            if any(map(math.isfinite, y)):
                marker = "o" if len(x) <= 15 else ""
                ax.plot(
                    x, y, color=COLOURS[i], linestyle=DASHES[i], marker=marker, markersize=4.5,
                    label=part,
                )  # fmt: skip
        values = [v for drawn in ax.lines for v in drawn.get_ydata() if math.isfinite(v)]
        if min(values, default=0) > 0 and max(values) > FAR * min(values):
            ax.set_yscale("log")
            plain_log(ax, "y")
        ax.set_ylabel(name)
        ax.margins(x=0.02)
    for before, after in itertools.pairwise(epochs):
        if after["functions"] is not None and after["functions"] != before["functions"]:
            place = (before["epoch"] + after["epoch"]) / 2
            for ax in panels:
                ax.axvline(place, color=SOURCE, linewidth=0.8, linestyle=":")
            panels[0].annotate(
                f"K = {after['functions']}", (place, 1), xycoords=("data", "axes fraction"),
                xytext=(2, 2), textcoords="offset points", fontsize=8,
            )  # fmt: skip
    panels[-1].set_xlabel("epoch")
    panels[-1].xaxis.set_major_locator(MaxNLocator(8, integer=True, min_n_ticks=1))
    handles, labels = panels[0].get_legend_handles_labels()
    fig.legend(handles, labels, loc="outside lower center", ncols=len(PARTS))
    return fig
