"""What changes while a model trains."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from matplotlib.ticker import MaxNLocator

from continua._errors import ArgumentError

from ._axes import FAR, look, plain_log
from ._style import DASHES, Axes, Figure, figure, styled

#: with more values than this a line is a band, and its running mean is drawn on top
MANY = 250


@styled
def evaluations(histories: Mapping[str, Sequence[float]], *, xlabel: str = "epoch") -> Figure:
    """The number of function evaluations over training, one line per model.

    Values far apart stand on a logarithmic axis.

    Args:
        histories: the evaluations of each model, the first of them at 1, under its name.
        xlabel: what they were counted after.

    Example:
        >>> figure = evaluations({"depth-invariant": [26, 32, 44], "Galerkin": [26, 26, 32]})
        >>> figure.axes[0].get_ylabel()
        'function evaluations'
    """
    found = checked(histories, positive="the number of evaluations")
    fig = figure(6.4, 3.6)
    ax = fig.subplots()
    draw(ax, found)
    values = [v for history in found.values() for v in history if math.isfinite(v)]
    if max(values) > FAR * min(values):
        ax.set_yscale("log")
        plain_log(ax, "y")
    else:
        ax.set_ylim(0, 1.08 * max(values))
    ax.set_xlabel(xlabel)
    ax.set_ylabel("function evaluations")
    fig.legend(loc="outside lower center", ncols=columns(found))
    return fig


@styled
def losses(
    histories: Mapping[str, Sequence[float]],
    *,
    xlabel: str = "step",
    ylabel: str = "loss",
    log: bool = True,
) -> Figure:
    """The loss over training, one line per model.

    A long history is shown as it is, pale, with its running mean on top. Values that are not
    finite leave a gap.

    Args:
        histories: the losses of each model, the first of them at 1, under its name.
        xlabel: what they were measured after.
        ylabel: what they are.
        log: whether on a logarithmic axis, which takes positive losses only.

    Example:
        >>> figure = losses({"one": [1.0, 0.1, 0.01]})
        >>> figure.axes[0].get_yscale()
        'log'
    """
    found = checked(histories, positive="a loss on a logarithmic axis" if log else None)
    fig = figure(6.4, 3.6)
    ax = fig.subplots()
    draw(ax, found)
    if log:
        ax.set_yscale("log")
        values = [v for history in found.values() for v in history if math.isfinite(v)]
        if max(values) < 100 * min(values):
            plain_log(ax, "y")
    ax.set_xlabel(xlabel)
    ax.set_ylabel(ylabel)
    fig.legend(loc="outside lower center", ncols=columns(found))
    return fig


def checked(
    histories: Mapping[str, Sequence[float]], *, positive: str | None
) -> dict[str, list[float]]:
    """The histories as numbers."""
    if not histories:
        raise ArgumentError("no histories; give at least one")
    found = {name: [float(v) for v in history] for name, history in histories.items()}
    for name, history in found.items():
        values = [v for v in history if math.isfinite(v)]
        if not values:
            raise ArgumentError(f"history {name!r} has no finite number to show")
        if positive and min(values) <= 0:
            remedy = "; give log=False" if "logarithmic" in positive else ""
            raise ArgumentError(
                f"{positive} is positive, but history {name!r} has {min(values):g}{remedy}"
            )
    return found


def draw(ax: Axes, histories: Mapping[str, list[float]]) -> None:
    """A line each, with markers where there are few values."""
    longest = max(map(len, histories.values()))
    for i, (name, history) in enumerate(histories.items()):
        colour, marker = look(i)
        steps = list(range(1, len(history) + 1))
        shown = history
        if len(history) > MANY:
            ax.plot(steps, history, color=colour, linewidth=0.7, alpha=0.3)
            shown = running_mean(history, len(history) // 50)
        ax.plot(
            steps,
            shown,
            color=colour,
            linestyle=DASHES[i % len(DASHES)],
            marker=marker if longest <= 15 else "",
            markersize=4.5,
            label=name,
        )
    ax.margins(x=0.02)
    ax.xaxis.set_major_locator(MaxNLocator(8, integer=True, min_n_ticks=1, steps=[1, 2, 5, 10]))


def running_mean(values: Sequence[float], width: int) -> list[float]:
    """The mean of the finite ones among each value and its neighbours, nan where there are none."""
    x = torch.tensor(values, dtype=torch.float64)
    known = x.isfinite()
    half = max(width // 2, 1)
    sums = torch.cat([x.new_zeros(1), torch.where(known, x, 0).cumsum(0)])
    counts = torch.cat([x.new_zeros(1), known.double().cumsum(0)])
    place = torch.arange(len(x))
    # Near the start, where a loss falls fast, the mean is not of one side only.
    reach = place.clamp(max=half)
    first, last = place - reach, (place + reach + 1).clamp(max=len(x))
    mean = (sums[last] - sums[first]) / (counts[last] - counts[first])
    mean[~known] = torch.nan
    return mean.tolist()


def columns(histories: Mapping[str, object]) -> int:
    """How many names stand beside each other in a legend."""
    letters = max(map(len, histories))
    return max(1, min(len(histories), 84 // (letters + 7)))
