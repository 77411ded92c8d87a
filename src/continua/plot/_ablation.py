"""What the flows of a model contribute."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Protocol

from continua._errors import ArgumentError

from ._style import COLOURS, SOURCE, Figure, figure, styled

#: of longer names, which would leave no room for the bars, the end is written
LETTERS = 20


class Report(Protocol):
    """What a figure needs of an ablation: `continua.models.Ablation` has it."""

    @property
    def measure(self) -> str:
        """What was measured."""

    @property
    def whole(self) -> float:
        """Of the whole model."""

    @property
    def without(self) -> Mapping[str, float]:
        """Of the model without one flow each."""


@styled
def ablation(report: Report) -> Figure:
    """How well a model does as a whole, and without each of its flows.

    Args:
        report: what `continua.ablate` returned.

    Example:
        >>> from continua.models import Ablation
        >>> report = Ablation("accuracy", 0.99, {"1": 0.52}, {"1": 0.8})
        >>> figure = ablation(report)
        >>> [text.get_text() for text in figure.axes[0].get_yticklabels()]
        ['whole model', 'without flow 1']
    """
    if not report.without:
        raise ArgumentError("the report has no flow that was left out")
    names = ["whole model"]
    for name in report.without:
        end = name if len(name) <= LETTERS else "…" + name[1 - LETTERS :]
        names.append(f"without flow {end}" if name else "without the flow")
    values = [float(value) for value in (report.whole, *report.without.values())]
    for name, value in zip(names, values, strict=True):
        if not math.isfinite(value):
            raise ArgumentError(f"the {report.measure} of {name!r} is {value!r}, not finite")
    fig = figure(6.4, 0.8 + 0.42 * len(names))
    ax = fig.subplots()
    drawn = ax.barh(
        list(range(len(names))),
        values,
        height=0.62,
        color=[SOURCE, *(COLOURS[1] for _ in report.without)],
        zorder=2,
    )
    behind = {"facecolor": "white", "edgecolor": "none", "pad": 1.5}  # the line may pass there
    numbers = [written(value) for value in values]
    ax.bar_label(drawn, numbers, padding=5, bbox=behind, zorder=4)
    ax.axvline(report.whole, color=SOURCE, linewidth=1, linestyle=(0, (2, 2)), zorder=3)
    ax.set_yticks(list(range(len(names))), names, parse_math=False)
    ax.tick_params(axis="y", length=0)
    ax.invert_yaxis()
    ax.grid(visible=False, axis="y")
    low, high = min(0.0, *values), max(0.0, *values)
    room = 0.14 * (high - low) or 1.0  # for the numbers
    ax.set_xlim(low - room if low else 0, high + room if high else 0)
    ax.set_xlabel(report.measure)
    return fig


def written(value: float) -> str:
    """A number with three digits that count."""
    return f"{value:.3f}" if 0.1 <= abs(value) < 10 else f"{value:.3g}"
