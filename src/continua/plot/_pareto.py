"""Accuracy over parameters, with the front of what is worth its size."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from matplotlib.lines import Line2D
from matplotlib.patheffects import withStroke

from ._axes import bars, look, parameter_axis, share_axis, shifted, shortened, spacing
from ._style import SOURCE, Axes, Figure, figure, styled
from ._trial import (
    Trial,
    against,
    at_least_one,
    front,
    kept,
    percent,
    ratio,
    some,
    variant,
)

#: points on paper between two series at the same number of parameters
APART = 8

FRONT = "#888888"


@styled
def pareto(
    source: Trial, trials: Sequence[Trial], *, samples: int, what: str = "accuracy"
) -> Figure:
    r"""Accuracy over the number of parameters, the Pareto front of source and variants marked.

    The line is the best accuracy that n parameters buy; the variants on it are ringed and
    labelled with their size,

    .. math:: n \mapsto \max \{ p_i : n_i \le n \}

    Families differ in colour and marker; a hollow marker is interpolated. Bars are Wilson's
    interval of one standard error. Series with equally many parameters stand side by side, the
    one on the front in its true place.

    Args:
        source: the trained model, a star.
        trials: the variants made from it.
        samples: how many samples the accuracy was measured on.
        what: what the accuracy is of, for the axis.

    Example:
        >>> source = Trial("PiecewiseConstant", 8, "Euler", 8, "source", 8000, 0.99)
        >>> half = Trial("PiecewiseConstant", 4, "Euler", 8, "project", 4000, 0.98)
        >>> pareto(source, [half], samples=1000).axes[0].get_ylabel()
        'accuracy, %'
    """
    at_least_one("samples", samples)
    everything = [source, *some(trials)]
    best = front(everything)
    names = list(dict.fromkeys(series(t) for t in trials))
    rows = math.ceil((len(names) + 2) / columns(names))
    width = 7.2 if len(names) <= 8 else 9.0
    fig = figure(width, 3.8 + 0.21 * rows)
    ax = fig.subplots()
    unit = parameter_axis(ax, [t.parameters for t in everything])
    share_axis(ax, [t.accuracy for t in everything], samples, what)

    line = [(t.parameters / unit, 100 * t.accuracy) for t in best]
    line.append((ax.get_xlim()[1], line[-1][1]))
    ax.plot(
        *zip(*line, strict=True),
        drawstyle="steps-post",
        color=FRONT,
        linewidth=1.2,
        zorder=1,
        label="Pareto front",
    )
    families = list(dict.fromkeys(t.basis for t in trials))
    shifts = side_by_side(ax, source, trials, best, unit, 72 * (width - 0.9))
    for trial in trials:
        colour, marker = look(families.index(trial.basis))
        dot(
            ax,
            trial,
            unit,
            samples,
            shift=shifts[trial.parameters, series(trial)],
            label=series(trial),
            color=colour,
            marker=marker,
            markersize=6.5,
            markerfacecolor=face(trial, colour),
        )
    dot(
        ax,
        source,
        unit,
        samples,
        shift=shifts[source.parameters, "source"],
        label="source",
        color=SOURCE,
        marker="*",
        markersize=14,
    )
    for trial in best:
        ring(ax, trial, unit, is_source=trial is source)
    ax.set_title(
        f"{samples:,} samples (one is {100 / samples:.2g} points); bars: one standard error; "
        "equal sizes stand side by side",
        fontsize=9,
    )
    legend(fig, ax, names)
    return fig


def describe_pareto(source: Trial, trials: Sequence[Trial]) -> str:
    """What the figure shows, in a sentence: the smallest variant within one point of the source.

    If all lose more than that, the most accurate of those that are smaller than the source.

    Args:
        source: the trained model.
        trials: the variants made from it.

    Example:
        >>> source = Trial("PiecewiseConstant", 8, "Euler", 8, "source", 8000, 0.991)
        >>> half = Trial("PiecewiseConstant", 4, "Euler", 8, "project", 4160, 0.989)
        >>> describe_pareto(source, [half])[:66]
        'At 0.52 of the parameters (PiecewiseConstant(4), project) accuracy'
        >>> describe_pareto(source, [half])[67:]
        "is 98.9 %, 0.2 points below the source's 99.1 %."
    """
    smaller = [t for t in some(trials) if t.parameters < source.parameters] or trials
    good = front(kept(source, smaller))
    told = good[0] if good else max(smaller, key=lambda t: (t.accuracy, -t.parameters))
    return (
        f"At {ratio(told.parameters, source.parameters)} of the parameters "
        f"({variant(source, told)}) accuracy is {percent(told.accuracy)}, "
        f"{against(told.accuracy, source.accuracy)}."
    )


def series(trial: Trial) -> str:
    """The name that trials of one family and method share."""
    return f"{trial.basis}, {trial.method}"


def face(trial: Trial, colour: str) -> str:
    """The inside of a marker: hollow if interpolated, pale if only the solver was changed."""
    return {"interpolate": "white", "source": "#DDDDDD"}.get(trial.method, colour)


def side_by_side(
    ax: Axes,
    source: Trial,
    trials: Sequence[Trial],
    best: Sequence[Trial],
    unit: int,
    width: float,
) -> dict[tuple[int, str], float]:
    """How far each series is shifted at each number of parameters, in points on paper.

    The one on the front stays where it is, so that the line meets it; the others stand to its
    right and left in turn.
    """
    groups: dict[int, dict[str, None]] = {}
    named = [(t, "source" if t is source else series(t)) for t in best]
    for trial, name in [*named, (source, "source"), *((t, series(t)) for t in trials)]:
        groups.setdefault(trial.parameters, {})[name] = None
    apart = spacing(ax, groups, unit, width=width, most=APART)
    shifts = {}
    for n, names in groups.items():
        for j, name in enumerate(names):
            side = 1 if j % 2 else -1
            shifts[n, name] = side * apart[n] * ((j + 1) // 2)
            if j and "source" in names:
                shifts[n, name] += side * APART / 2  # a star is wider
    return shifts


def dot(
    ax: Axes,
    trial: Trial,
    unit: int,
    samples: int,
    *,
    shift: float = 0.0,
    **style: Any,
) -> None:
    """One trial and its standard error, shifted on paper but not in value."""
    ax.errorbar(
        [trial.parameters / unit],
        [100 * trial.accuracy],
        yerr=bars(trial.accuracy, samples),
        linestyle="none",
        elinewidth=1,
        ecolor=(style["color"], 0.5),
        transform=shifted(ax, shift),
        **style,
    )


def ring(ax: Axes, trial: Trial, unit: int, *, is_source: bool) -> None:
    """Mark a trial of the front and write its size where nothing can be: smaller and better."""
    place = (trial.parameters / unit, 100 * trial.accuracy)
    ax.plot(
        *([v] for v in place),
        marker="o",
        markersize=19 if is_source else 13,
        markerfacecolor="none",
        markeredgecolor=SOURCE,
        markeredgewidth=1,
        linestyle="none",
        label="on the front",
        zorder=4,
    )
    ax.annotate(
        f"K={trial.size}",
        place,
        xytext=(-6, 6) if not is_source else (-8, 8),
        textcoords="offset points",
        ha="right",
        va="bottom",
        fontsize=8.5,
        color="#222222",
        path_effects=[withStroke(linewidth=2.5, foreground="white")],
        zorder=6,
    )


def columns(names: Sequence[str]) -> int:
    """How many columns the legend has."""
    return 2 if max(len(name) for name in names) <= 34 else 1


def legend(fig: Figure, ax: Axes, names: Sequence[str]) -> None:
    """Each series once, after the source and the front."""
    handles = dict(zip(*reversed(ax.get_legend_handles_labels()), strict=True))  # by label
    front_handle = Line2D(
        [],
        [],
        color=FRONT,
        linewidth=1.2,
        marker="o",
        markersize=10,
        markerfacecolor="none",
        markeredgecolor=SOURCE,
    )
    shown = {"source": handles["source"], "Pareto front": front_handle}
    shown |= {name: handles[name] for name in names}
    fig.legend(
        list(shown.values()),
        [shortened(name, 60) for name in shown],
        loc="outside lower center",
        ncols=columns(names),
    )
