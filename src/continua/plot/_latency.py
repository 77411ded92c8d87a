"""Time over parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from matplotlib.transforms import Bbox

from continua._errors import ArgumentError

from ._axes import FAR, look, parameter_axis, plain_log, shifted, spacing
from ._style import SOURCE, Axes, Figure, figure, styled
from ._trial import Trial, against, at_least_one, kept, percent, ratio, some, variant

#: where the number of steps may stand beside its point, best first
BESIDE = ((1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (-1, 1), (1, -1), (-1, -1))

#: the width of the figure in inches
WIDTH = 6.8

#: points on paper between two schemes with equally many parameters
APART = 14


class Point(NamedTuple):
    """A trial where it is drawn: its colour, and how far it is shifted on paper."""

    trial: Trial
    colour: str
    shift: float


@styled
def latency(source: Trial, trials: Sequence[Trial], *, batch: int) -> Figure:
    """The time of one batch over the number of parameters, one marker per scheme.

    The number beside a point is its number of steps. Schemes with equally many parameters stand
    side by side, shifted on paper but not in value. Trials without a time are left out.

    Args:
        source: the trained model, a star.
        trials: the variants made from it.
        batch: how many samples a batch has.

    Example:
        >>> source = Trial("PiecewiseConstant", 8, "Euler", 8, "source", 8000, 0.99, 9.0)
        >>> half = Trial("PiecewiseConstant", 4, "Euler", 4, "project", 4000, 0.98, 4.6)
        >>> latency(source, [half], batch=128).axes[0].get_ylabel()
        'milliseconds per batch of 128'
    """
    at_least_one("batch", batch)
    shown = timed(trials)
    stars = [source] if source.milliseconds is not None else []
    schemes = list(dict.fromkeys(t.scheme for t in shown))
    fig = figure(WIDTH, 4.2)
    ax = fig.subplots()
    unit = parameter_axis(ax, [t.parameters for t in (*stars, *shown)])
    time_axis(ax, [time(t) for t in (*stars, *shown)])
    ax.set_ylabel(f"milliseconds per batch of {batch:,}")
    ax.set_title("numbers: steps of the solver; equal sizes stand side by side", fontsize=9)
    points = [Point(t, SOURCE, 0) for t in stars]
    shifts = side_by_side(ax, shown, schemes, unit)
    for star in stars:
        ax.plot(
            [star.parameters / unit],
            [time(star)],
            color=SOURCE,
            marker="*",
            markersize=14,
            linestyle="none",
            label=f"source ({star.scheme})",
            zorder=3,
        )
    for trial in shown:
        colour, marker = look(schemes.index(trial.scheme))
        points.append(Point(trial, colour, shifts[trial.parameters, trial.scheme]))
        ax.plot(
            [trial.parameters / unit],
            [time(trial)],
            color=colour,
            marker=marker,
            markersize=6,
            markeredgecolor="white",
            markeredgewidth=0.5,
            linestyle="none",
            label=trial.scheme,
            transform=shifted(ax, points[-1].shift),
        )
    handles = dict(zip(*reversed(ax.get_legend_handles_labels()), strict=True))  # by label
    fig.legend(
        list(handles.values()),
        list(handles),
        loc="outside lower center",
        ncols=min(len(handles), 4),
    )
    write_steps(fig, ax, points, unit)
    return fig


def describe_latency(source: Trial, trials: Sequence[Trial]) -> str:
    """What the figure shows, in a sentence: the fastest variant, and the fastest that is as good.

    As good as the source is what loses at most one point of accuracy.

    Args:
        source: the trained model.
        trials: the variants made from it; those without a time are left out.

    Example:
        >>> source = Trial("PiecewiseConstant", 8, "Euler", 8, "source", 8000, 0.99, 9.0)
        >>> half = Trial("PiecewiseConstant", 4, "Euler", 4, "project", 4000, 0.985, 4.5)
        >>> describe_latency(source, [half])
        "The fastest variant (PiecewiseConstant(4), project, Euler in 4 steps) takes 4.5 ms, 0.50 of
        the source's 9 ms, at an accuracy of 98.5 %, 0.5 points below the source's 99.0 %."
    """
    shown = timed(trials)
    fastest = min(shown, key=time)
    sentence = (
        f"The fastest variant ({variant(source, fastest)}) takes {ms(fastest)}"
        f"{share(source, fastest)}, at an accuracy of {percent(fastest.accuracy)}, "
        f"{against(fastest.accuracy, source.accuracy)}"
    )
    good = kept(source, shown)
    if fastest in good:
        return f"{sentence}."
    if not good:
        return f"{sentence}; no variant is within one point of that."
    best = min(good, key=time)
    return (
        f"{sentence}; the fastest within one point of that ({variant(source, best)}) takes "
        f"{ms(best)}{share(source, best)}, at {percent(best.accuracy)}."
    )


def timed(trials: Sequence[Trial]) -> list[Trial]:
    """Those with a time."""
    found = [t for t in some(trials) if t.milliseconds is not None]
    if not found:
        raise ArgumentError(
            f"none of the {len(trials)} trials has a time; measure their milliseconds"
        )
    return found


def time(trial: Trial) -> float:
    """The time of a trial that has one."""
    assert trial.milliseconds is not None
    return trial.milliseconds


def ms(trial: Trial) -> str:
    """A time in words: three digits are what a clock is good for."""
    digits = f"{time(trial):.3g}"
    return f"{digits if 'e' not in digits else f'{time(trial):.0f}'} ms"


def share(source: Trial, trial: Trial) -> str:
    """How a time compares with that of the source, if the source has one."""
    if source.milliseconds is None:
        return ""
    return f", {ratio(time(trial), time(source))} of the source's {ms(source)}"


def time_axis(ax: Axes, times: Sequence[float]) -> None:
    """Prepare the y axis for these times."""
    low, high = min(times), max(times)
    if high > FAR * low:
        ax.set_yscale("log")
        plain_log(ax, "y")
        margin = (high / low) ** 0.09
        ax.set_ylim(low / margin, high * margin)
    else:
        ax.set_ylim(0, 1.1 * high)


def side_by_side(
    ax: Axes, trials: Sequence[Trial], schemes: Sequence[str], unit: int
) -> dict[tuple[int, str], float]:
    """How far each scheme is shifted at each number of parameters, in points on paper."""
    groups: dict[int, list[str]] = {}
    for trial in sorted(trials, key=lambda t: schemes.index(t.scheme)):
        names = groups.setdefault(trial.parameters, [])
        if trial.scheme not in names:
            names.append(trial.scheme)
    apart = spacing(ax, groups, unit, width=72 * (WIDTH - 0.9), most=APART)
    return {
        (n, name): apart[n] * (j - (len(names) - 1) / 2)
        for n, names in groups.items()
        for j, name in enumerate(names)
    }


def write_steps(fig: Figure, ax: Axes, points: Sequence[Point], unit: int) -> None:
    """Write the steps beside the points, each where it covers no point and no other number.

    Points of one scheme that all but coincide and have equally many steps are written once.
    """
    fig.draw_without_rendering()  # lays the figure out, so that places on paper are known
    places = [
        ax.transData.transform((p.trial.parameters / unit, time(p.trial))) * 72 / fig.dpi
        + (p.shift, 0)
        for p in points
    ]
    # A star is wider than other markers.
    radii = [7 if p.trial.method == "source" else 4 for p in points]
    taken = [
        Bbox.from_extents(x - r, y - r, x + r, y + r)
        for (x, y), r in zip(places, radii, strict=True)
    ]
    written: list[tuple[int, str, float, float]] = []
    for (trial, colour, shift), (x, y), r in zip(points, places, radii, strict=True):
        if any(
            (trial.steps, colour) == (steps, other) and abs(u - x) < 8 and abs(v - y) < 8
            for steps, other, u, v in written
        ):
            continue
        half = 2.5 * len(str(trial.steps))
        best = min(
            (
                Bbox.from_bounds(
                    x + dx * (r + 2 + half) - half, y + dy * (r + 4) - 3.5, 2 * half, 7
                )
                for dx, dy in BESIDE
            ),
            key=lambda box: sum(box.overlaps(other) for other in taken),
        )
        ax.annotate(
            str(trial.steps),
            (trial.parameters / unit, time(trial)),
            xytext=((best.x0 + best.x1) / 2 - x + shift, (best.y0 + best.y1) / 2 - y),
            textcoords="offset points",
            ha="center",
            va="center",
            fontsize=7.5,
            color=colour,
        )
        taken.append(best)
        written.append((trial.steps, colour, x, y))
