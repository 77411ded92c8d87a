"""Accuracy over steps: does a model follow its differential equation, or only its own solver?"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

from continua._errors import ArgumentError

from ._axes import bars, look, share_axis, spread_out
from ._style import DASHES, SOURCE, Axes, Figure, figure, styled
from ._trial import Trial, at_least_one, percent, solver_of


@styled
def convergence(runs: Mapping[str, Sequence[Trial]], *, samples: int) -> Figure:
    """Accuracy over the number of steps, one panel per trained model and one line per scheme.

    A model that follows its differential equation keeps its accuracy with more steps and with any
    scheme; one that has learnt its solver's error loses it. Bars are Wilson's interval of one
    standard error.

    Krishnapriyan et al., "Learning continuous models for continuous physics" (2022), call this
    the convergence test.

    Args:
        runs: the trials of each trained model, under the title of its panel. The first with the
            method `"source"` is the model as trained, a star.
        samples: how many samples the accuracy was measured on.

    Example:
        >>> trained = Trial("PiecewiseConstant", 8, "Euler", 8, "source", 8000, 0.99)
        >>> finer = Trial("PiecewiseConstant", 8, "Euler", 16, "project", 8000, 0.7)
        >>> figure = convergence({"trained with Euler, 8 steps": [trained, finer]}, samples=1000)
        >>> figure.axes[0].get_xlabel()
        'steps'
    """
    at_least_one("samples", samples)
    stars = trained(runs)
    schemes = list(dict.fromkeys(t.scheme for trials in runs.values() for t in trials))
    columns = min(len(runs), 2)
    rows = math.ceil(len(runs) / columns)
    fig = figure(max(3.7 * columns, 4.6), 0.9 + 2.7 * rows)
    grid = fig.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    for ax in list(grid.flat)[len(runs) :]:
        ax.remove()
    panels = list(grid.flat)[: len(runs)]
    for ax, (title, trials) in zip(panels, runs.items(), strict=True):
        lines = by_scheme(title, trials, stars[title])
        for scheme, line in lines.items():
            curve(ax, line, samples, schemes.index(scheme))
        ax.plot(
            [stars[title].steps],
            [100 * stars[title].accuracy],
            color=SOURCE,
            marker="*",
            markersize=14,
            linestyle="none",
            label="as trained",
            zorder=5,
        )
        ax.set_title(textwrap.fill(title, 44))
    everything = [t for trials in runs.values() for t in trials]
    share_axis(panels[0], [t.accuracy for t in everything], samples, "accuracy")
    step_axis(panels[0], [t.steps for t in everything])
    for i, ax in enumerate(panels):
        # The lowest panel of each column, also where the last row is not full.
        lowest = i + columns >= len(panels)
        ax.tick_params(labelbottom=lowest)
        ax.set_xlabel("steps" if lowest else "")
        ax.set_ylabel("accuracy, %" if i % columns == 0 else "")
    handles: dict[str, Any] = {}
    for ax in panels:
        handles |= dict(zip(*reversed(ax.get_legend_handles_labels()), strict=True))
    shown = ["as trained", *schemes]
    fig.legend(
        [handles[name] for name in shown],
        shown,
        loc="outside lower center",
        ncols=min(len(shown), 3 * columns),
    )
    return fig


def describe_convergence(runs: Mapping[str, Sequence[Trial]]) -> str:
    """What the figure shows, in a sentence: each model as trained and with the most steps.

    Args:
        runs: the trials of each trained model, as for `convergence`.

    Example:
        >>> trained = Trial("PiecewiseConstant", 8, "Euler", 8, "source", 8000, 0.99)
        >>> finer = Trial("PiecewiseConstant", 8, "Euler", 16, "project", 8000, 0.7)
        >>> describe_convergence({"trained with Euler, 8 steps": [trained, finer]})
        'Trained with Euler, 8 steps: 99.0 % as trained, 70.0 % at the most steps (Euler in
        16 steps), 29.0 points away.'
    """
    stars = trained(runs)
    sentence = "; ".join(told(title, runs[title], star) for title, star in stars.items())
    return f"{sentence[:1].upper()}{sentence[1:]}."


def told(title: str, trials: Sequence[Trial], star: Trial) -> str:
    """One model's part of the sentence."""
    lines = by_scheme(title, trials, star)
    finest = [line[-1] for line in lines.values() if line[-1] is not star]
    # A scheme that was only tried with fewer steps says nothing about the limit.
    finest = [t for t in finest if t.steps >= star.steps] or finest
    start = f"{title}: {percent(star.accuracy)} as trained"
    if not finest:
        fewer = [t for line in lines.values() for t in line if t is not star]
        if not fewer:
            return f"{start}, the only measurement"
        last = fewer[-1]
        return f"{start}, {percent(last.accuracy)} with fewer steps ({solver_of(last)})"
    low, high = (f(finest, key=lambda t: t.accuracy) for f in (min, max))
    away = 100 * max(abs(t.accuracy - star.accuracy) for t in finest)
    if len(finest) == 1:
        where = f"{percent(low.accuracy)} at the most steps ({solver_of(low)}), "
        return f"{start}, {where}{away:.1f} points away"
    if percent(low.accuracy) == percent(high.accuracy):
        where = f"{percent(low.accuracy)} at the most steps of each scheme, "
        return f"{start}, {where}at most {away:.1f} points away"
    return (
        f"{start}, from {percent(low.accuracy)} ({solver_of(low)}) to {percent(high.accuracy)} "
        f"({solver_of(high)}) at the most steps of each scheme, at most {away:.1f} points away"
    )


def trained(runs: Mapping[str, Sequence[Trial]]) -> dict[str, Trial]:
    """The training point of each run."""
    if not runs:
        raise ArgumentError("no runs; give the trials of at least one trained model")
    found = {}
    for title, trials in runs.items():
        sources = [t for t in trials if t.method == "source"]
        if not sources:
            raise ArgumentError(
                f"run {title!r} has no trial with the method 'source'; "
                "add the model as it was trained"
            )
        found[title] = sources[0]
    return found


def by_scheme(title: str, trials: Sequence[Trial], star: Trial) -> dict[str, list[Trial]]:
    """The lines of a panel, each sorted by steps, with one trial at each number of steps."""
    places = {(star.scheme, star.steps): star}
    for trial in trials:
        place = (trial.scheme, trial.steps)
        other = places.setdefault(place, trial)
        # The model as trained may be evaluated again among its variants: the first one counts.
        if other is not star and other.accuracy != trial.accuracy:
            raise ArgumentError(
                f"run {title!r} has two accuracies for {solver_of(trial)}, {other.accuracy!r} "
                f"and {trial.accuracy!r}; give each basis a run of its own"
            )
    lines: dict[str, list[Trial]] = {}
    for trial in trials:
        lines.setdefault(trial.scheme, [])
    for (scheme, _), trial in sorted(places.items(), key=lambda item: item[0][1]):
        lines[scheme].append(trial)
    return lines


def curve(ax: Axes, line: Sequence[Trial], samples: int, i: int) -> None:
    """One scheme, point by point."""
    colour, marker = look(i)
    errors = [bars(t.accuracy, samples) for t in line]
    ax.errorbar(
        [t.steps for t in line],
        [100 * t.accuracy for t in line],
        yerr=[[e[side][0] for e in errors] for side in (0, 1)],
        color=colour,
        marker=marker,
        markersize=5.5,
        linestyle=DASHES[i % len(DASHES)],
        linewidth=1.5,
        elinewidth=1,
        ecolor=(colour, 0.5),
        label=line[0].scheme,
    )


def step_axis(ax: Axes, steps: Sequence[int]) -> None:
    """A logarithmic axis whose ticks are numbers of steps that were tried."""
    ax.set_xscale("log", base=2)
    ticks = spread_out(steps)
    ax.xaxis.set_major_locator(FixedLocator(ticks))
    ax.xaxis.set_major_formatter(FixedFormatter([str(tick) for tick in ticks]))
    ax.xaxis.set_minor_locator(NullLocator())
    margin = 2 ** max(0.07 * math.log2(max(steps) / min(steps)), 0.15)
    ax.set_xlim(min(steps) / margin, max(steps) * margin)
