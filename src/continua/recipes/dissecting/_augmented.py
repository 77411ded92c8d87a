"""What the trainings of table 1 came to: a table's rows, and the paper's order."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .._output import csv_text
from .._study import percent

#: the kinds of model, as the table calls them
KINDS = {
    "vanilla": "vanilla",
    "zero": "0-augmented",
    "input-layer": "input layer",
    "second-order": "second order",
}
RICH, POOR = ("input-layer", "second-order"), ("vanilla", "zero")


@dataclass(frozen=True)
class Trained:
    """What one training came to.

    Attributes:
        kind: of the model.
        seed: of the training.
        parameters: of the model.
        accuracy: on the test images; None if the training diverged.
        forward: evaluations per step, mean over all steps.
        backward: the same of the backward pass.
        seconds: per step.
        course: forward evaluations per step, mean over each epoch.
        final: forward evaluations of the trained model with the paper's solver, mean over the
            batches of the test images.
        fine: accuracy with the paper's solver.
    """

    kind: str
    seed: int
    parameters: int | None = None
    accuracy: float | None = None
    forward: float | None = None
    backward: float | None = None
    seconds: float | None = None
    course: Sequence[float] = ()
    final: float | None = None
    fine: float | None = None


HEAD = (
    "augmentation", "parameters", "test accuracy", "test accuracy, paper's solver",
    "NFE forward", "NFE backward", "NFE, trained model", "seconds per step",
    "accuracy (paper)", "NFE (paper)", "parameters (paper)",
)  # fmt: skip
EXPLANATION = (
    "Means and standard deviations over seeds. NFE is the mean over all training steps of the "
    "calls of the field: forward every stage of every step, rejected ones too, and the trial "
    "call that finds the first step length; backward the calls of the adjoint equation and of its "
    "quadrature, none with `Backprop()`. The trained model is tested once more with the paper's "
    "solver and batch size, which gives *NFE, trained model*. The columns marked as the paper's "
    "are from its table 1 (means of 10 runs, NFE forward), not measured here. `evaluations.png` "
    "shows NFE forward over the training; `runs.csv` has every run."
)


def values(each: Sequence[Trained], name: str) -> list[float]:
    """One of the measures, of the runs that have it."""
    return [getattr(one, name) for one in each if getattr(one, name) is not None]


def with_spread(found: Sequence[float], unit: str, digits: int) -> str:
    """A mean, and the standard deviation where there are several."""
    mean = f"{statistics.fmean(found):.{digits}f}"
    if len(found) < 2:
        return f"{mean}{unit}"
    return f"{mean} ± {statistics.stdev(found):.{digits}f}{unit}"


def verdicts(runs: Mapping[str, Sequence[Trained]]) -> list[str]:
    """Whether the paper's order is found here, from the means."""
    accuracy = {k: statistics.fmean(v) for k in runs if (v := values(runs[k], "accuracy"))}
    forward = {k: statistics.fmean(v) for k in runs if (v := values(runs[k], "forward"))}
    if accuracy.keys() != KINDS.keys():
        missing = ", ".join(KINDS[kind] for kind in KINDS if kind not in accuracy)
        return [f"The order cannot be compared: no training of {missing} came to an end."]
    better = min(accuracy[k] for k in RICH) > accuracy["zero"]
    room = accuracy["zero"] > accuracy["vanilla"]
    final = {k: statistics.fmean(v) for k in runs if (v := values(runs[k], "final"))}
    cost, where = (forward, "per step")
    if final.keys() == KINDS.keys():
        cost, where = (final, "in the trained models, with the paper's solver")
    cheaper = max(cost[k] for k in RICH) < min(cost[k] for k in POOR)
    by_accuracy = sorted(KINDS, key=lambda k: -accuracy[k])
    by_cost = sorted(KINDS, key=lambda k: cost[k])
    return [
        "The paper finds input layer and second order above 0-augmentation, and that above the "
        f"vanilla model: this {'holds' if better and room else 'does not hold'} here, where "
        f"accuracies are {listed(by_accuracy, accuracy, percent)}. "
        f"Input layer and second order are {'both' if better else 'not both'} above "
        f"0-augmentation, and 0-augmentation is {'' if room else 'not '}above vanilla."
        + noise(runs),
        "The paper finds that input layer and second order need the fewest evaluations: this "
        f"{'holds' if cheaper else 'does not hold'} here, where they are "
        f"{listed(by_cost, cost, '{:.1f}'.format)} {where}.",
    ]


def noise(runs: Mapping[str, Sequence[Trained]]) -> str:
    """How much of a difference the seeds alone make."""
    each = [values(runs[kind], "accuracy") for kind in KINDS]
    spreads = [statistics.stdev(found) for found in each if len(found) > 1]
    if not spreads:
        return ""
    return (
        f" Seeds alone change an accuracy by up to {100 * max(spreads):.2f} points (the largest "
        "of the standard deviations): smaller differences say little."
    )


def listed(kinds: Sequence[str], found: Mapping[str, float], shown: Any) -> str:
    """The kinds in this order, each with its number."""
    return ", ".join(f"{KINDS[kind]} {shown(found[kind])}" for kind in kinds)


def as_csv(runs: Mapping[str, Sequence[Trained]]) -> str:
    """Every run as a line."""
    names = (
        "kind", "seed", "parameters", "accuracy", "forward", "backward", "seconds", "final", "fine"
    )  # fmt: skip
    every = [one for each in runs.values() for one in each]
    return csv_text(names, ([getattr(one, name) for name in names] for one in every))
