"""Variants of a trained model, and which of them are worth their size."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from continua._errors import ArgumentError

#: a variant that loses no more than this share keeps the accuracy of its source
KEPT = 0.01


@dataclass(frozen=True)
class Trial:
    """One evaluated variant of a trained model.

    Attributes:
        basis: the family of its basis, `"PiecewiseConstant"` for instance.
        size: the number of basis functions, K.
        scheme: its solver, `"Euler"` or `"RK4"` for instance.
        steps: the steps of that solver.
        method: `"source"` for the model as trained; `"project"` or `"interpolate"` for what
            `continua.compress` made of it.
        parameters: how many scalars it has.
        accuracy: the share of samples it gets right, from 0 to 1.
        milliseconds: the time of one batch, if it was measured.

    Example:
        >>> Trial("PiecewiseConstant", 4, "Euler", 8, "project", 4000, 98.9)
        Traceback (most recent call last):
        ...
        continua._errors.ArgumentError: accuracy is a share from 0 to 1, not 98.9
    """

    basis: str
    size: int
    scheme: str
    steps: int
    method: str
    parameters: int
    accuracy: float
    milliseconds: float | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.accuracy <= 1:
            raise ArgumentError(f"accuracy is a share from 0 to 1, not {self.accuracy!r}")
        for name in ("size", "steps", "parameters"):
            at_least_one(name, getattr(self, name))
        if self.milliseconds is not None and not 0 < self.milliseconds < math.inf:
            raise ArgumentError(
                f"milliseconds are positive, or None if not measured; not {self.milliseconds!r}"
            )


def front(trials: Sequence[Trial]) -> list[Trial]:
    r"""The Pareto front: the trials that no other beats, from the smallest to the largest.

    A trial is left out if another has no more parameters and no less accuracy,

    .. math:: n_j \le n_i \;\text{and}\; p_j \ge p_i \;\text{for some}\; j \ne i

    Of trials that are equal in both, the first stays.

    Example:
        >>> large = Trial("PiecewiseConstant", 8, "Euler", 8, "source", 8000, 0.99)
        >>> small = Trial("PiecewiseConstant", 4, "Euler", 8, "project", 4000, 0.98)
        >>> worse = Trial("PiecewiseConstant", 4, "Euler", 8, "interpolate", 4000, 0.97)
        >>> [t.parameters for t in front([large, small, worse])]
        [4000, 8000]
    """
    found: list[Trial] = []
    for trial in sorted(trials, key=lambda t: (t.parameters, -t.accuracy)):
        if not found or trial.accuracy > found[-1].accuracy:
            found.append(trial)
    return found


def at_least_one(name: str, value: float) -> None:
    """Refuse a count that is not one."""
    if not value >= 1:
        raise ArgumentError(f"{name} is at least 1, not {value!r}")


def some(trials: Sequence[Trial]) -> Sequence[Trial]:
    """The trials, if there are any."""
    if not trials:
        raise ArgumentError("no trials; give at least one variant of the source")
    return trials


def kept(source: Trial, trials: Sequence[Trial]) -> list[Trial]:
    """Those that keep the accuracy of the source, up to one point."""
    # Accuracies are quotients of counts: a loss of exactly one point may round to a bit more.
    return [t for t in trials if source.accuracy - t.accuracy <= KEPT + 1e-9]


def basis_of(trial: Trial) -> str:
    """The basis as it is constructed: Fourier takes its order, Constant takes nothing."""
    if trial.basis == "Constant":
        return "Constant()"
    if trial.basis == "Fourier":
        return f"Fourier({(trial.size - 1) // 2})"
    return f"{trial.basis}({trial.size})"


def solver_of(trial: Trial) -> str:
    """The solver in words."""
    return f"{trial.scheme} in {trial.steps} step{'s' if trial.steps > 1 else ''}"


def variant(source: Trial, trial: Trial) -> str:
    """What a trial is; its solver is named if it is not the source's."""
    words = [basis_of(trial), trial.method]
    if (trial.scheme, trial.steps) != (source.scheme, source.steps):
        words.append(solver_of(trial))
    return ", ".join(words)


def percent(share: float) -> str:
    """A share in percent."""
    return f"{100 * share:.1f} %"


def ratio(part: float, whole: float) -> str:
    """A quotient with two digits."""
    value = part / whole
    return f"{value:.2f}" if value >= 0.1 else f"{value:.2g}"


def against(share: float, reference: float) -> str:
    """How a share compares with that of the source."""
    points = f"{100 * abs(share - reference):.1f}"
    if points == "0.0":
        return f"equal to the source's {percent(reference)}"
    side = "above" if share > reference else "below"
    return f"{points} points {side} the source's {percent(reference)}"
