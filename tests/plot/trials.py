"""Trials of a study to draw, and how to read their figures."""

import io

from continua.plot import Trial


def trial(size=4, accuracy=0.98, **changes):
    known = {
        "basis": "PiecewiseConstant",
        "scheme": "Euler",
        "steps": 8,
        "method": "project",
        "parameters": 1000 * size,
    }
    return Trial(size=size, accuracy=accuracy, **{**known, **changes})


SOURCE = trial(8, 0.991, method="source", milliseconds=9.0)
HALF = trial(4, 0.989, milliseconds=8.0)
POINTS = trial(4, 0.97, method="interpolate", milliseconds=8.1)
HATS = trial(4, 0.985, basis="PiecewiseLinear", scheme="RK4", steps=4, milliseconds=12.0)
QUARTER = trial(2, 0.95, steps=2, milliseconds=3.0)
TRIALS = [HALF, POINTS, HATS, QUARTER]


def png(figure):
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    return buffer.getvalue()


def legend(figure):
    return [text.get_text() for text in figure.legends[0].get_texts()]


def places(ax, label):
    """Where the markers with this label stand, in the units of the axes."""
    drawn = [c.lines[0] for c in ax.containers if c.get_label() == label]
    drawn += [line for line in ax.lines if line.get_label() == label]
    return [(float(x), float(y)) for line in drawn for x, y in line.get_xydata()]


def title(ax):
    return ax.get_title(loc="left")


def run(scheme, *, limit):
    """Trained with 8 steps; elsewhere the accuracy is that of the limit, or less."""
    trials = [
        trial(8, limit - 0.2 / steps, scheme=s, steps=steps)
        for s in ("RK4", "Euler")
        for steps in (32, 2, 8)
        if (s, steps) != (scheme, 8)
    ]
    return [*trials, trial(8, 0.99, scheme=scheme, method="source")]


RUNS = {
    "trained with Euler, 8 steps": run("Euler", limit=0.6),
    "trained with RK4, 8 steps": run("RK4", limit=0.99),
}
