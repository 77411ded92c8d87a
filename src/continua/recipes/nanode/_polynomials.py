"""Weights as polynomials of depth: monomials, orthogonal families, and a start at low order."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import Any

import continua as ct
from continua import plot
from continua.train import Training, read_history

from .._output import write_figure
from .._recipe import Recipe
from .._setup import Scale
from .._study import Circumstances, Study, percent, table
from ._rows import SMOKE, setup_of

#: functions of depth, as many steps, and epochs before which both are doubled from a quarter
SIZE: dict[Scale, int] = {"smoke": 4, "laptop": 16, "full": 16}
GROWTH: dict[Scale, tuple[int, int]] = {"smoke": (1, 2), "laptop": (2, 4), "full": (4, 8)}

COURSE = Training(
    epochs=8, batch_size=64, optimizer="adamw", learning_rate=1e-2, weight_decay=0.0,
    schedule="one-cycle", warmup=1, clip=1.0,
)  # fmt: skip


def course(scale: Scale) -> Any:
    """The digits, with as many steps as functions."""
    if scale == "smoke":
        return replace(SMOKE, training=replace(SMOKE.training, epochs=3))
    epochs = 8 if scale == "laptop" else 24
    return setup_of("digits", (16, 32), SIZE[scale], replace(COURSE, epochs=epochs))


digits = Recipe(
    "nanode/digits",
    "the embedded digits by a flow with a basis of depth",
    {scale: course(scale) for scale in SIZE},
    {"smoke": "seconds", "laptop": "minutes each", "full": "minutes each"},
)
RECIPES = (digits,)


@dataclass(frozen=True)
class Curve:
    """One training.

    Attributes:
        name: of the basis, and how it starts.
        losses: of every epoch.
        accuracy: on the test images; None if the training diverged.
        parameters: of the model; None if it diverged.
    """

    name: str
    losses: tuple[float, ...]
    accuracy: float | None = None
    parameters: int | None = None


@dataclass(frozen=True)
class Polynomials(Study):
    """Three families of polynomials at full size, and the monomials grown to it."""

    def perform(self, here: Circumstances) -> tuple[list[str], dict[str, Any]]:
        size, grow = SIZE[here.scale], GROWTH[here.scale]
        curves = [
            self._trained(here, f"{family}({size})", [f"basis={family}({size})", *steps(size)])
            for family in ("Polynomial", "Legendre", "Chebyshev")
        ]
        for family in ("Polynomial", "Legendre"):
            small = size // 4
            settings = [f"basis={family}({small})", *steps(small), f"refine_epochs={grow}"]
            curves.append(self._trained(here, f"{family}({size}), grown from {small}", settings))
        shown = {c.name: c.losses for c in curves if any(map(math.isfinite, c.losses))}
        if shown:
            figure = plot.losses(shown, xlabel="epoch", ylabel="training loss")
            write_figure(here.folder / "losses.png", figure)
        rows = [
            (
                f"`{c.name}`",
                "" if c.parameters is None else f"{c.parameters:,}",
                f"{c.losses[-1]:.4f}" if c.losses else "",
                "diverged" if c.accuracy is None else percent(c.accuracy),
            )
            for c in curves
        ]
        training = digits.scales[here.scale].training
        return [
            f"The embedded digits, {training.epochs} epochs in batches of {training.batch_size}, "
            f"{size} functions of depth and as many steps of AsynchronousLeapfrog with "
            f"`Reversible()`. Those that are grown start with {size // 4} functions and steps, and "
            f"both are doubled before epochs {grow[0] + 1} and {grow[1] + 1}: higher "
            "coefficients start at zero, and the function of depth is the same before and after. "
            "`losses.png` shows the mean loss of each epoch.",
            table(("weights", "parameters", "training loss at last", "test accuracy"), rows),
            sentence(curves),
        ], {"curves": [asdict(c) for c in curves]}

    def _trained(self, here: Circumstances, name: str, settings: list[str]) -> Curve:
        folder = name.lower().replace(", grown from ", "-grown-").replace("(", "-").replace(")", "")
        try:
            run, result = here.train(digits, folder, settings)
        except ct.SolveError:
            history = read_history(here.folder / folder)
            return Curve(name, tuple(line["train"]["loss"] for line in history))
        losses = tuple(line["train"]["loss"] for line in read_history(run.folder))
        return Curve(name, losses, result["test"]["accuracy"], result["parameters"])


def steps(count: int) -> list[str]:
    """As a setting."""
    return [f"solver=AsynchronousLeapfrog(steps={count})"]


def sentence(curves: list[Curve]) -> str:
    """How monomials train beside the others, by the loss of the last epoch."""
    monomials, *rest = curves
    if monomials.accuracy is None:
        return f"The training of {monomials.name} diverged."
    told = []
    for other in rest:
        if other.accuracy is None:
            told.append(f"the training of {other.name} diverged")
            continue
        ratio = other.losses[-1] / monomials.losses[-1]
        told.append(f"{other.name} ends at {ratio:.2f} times that ({percent(other.accuracy)})")
    orthogonal = [c for c in rest[:2] if c.accuracy is not None]
    harder = orthogonal and all(c.losses[-1] < monomials.losses[-1] for c in orthogonal)
    return (
        f"{monomials.name} ends at a training loss of {monomials.losses[-1]:.4f} "
        f"({percent(monomials.accuracy)} of the test images); {'; '.join(told)}. The paper finds "
        "polynomials of high order hard to train: monomials are "
        f"{'harder to train than both' if harder else 'not harder to train than both'} orthogonal "
        "families here, where depth stays within 0 and 1 and so no power of it is large."
    )


STUDIES = (
    Polynomials(
        "nanode/polynomials",
        "Polynomial weights: monomials, Legendre, Chebyshev, and grown from low order",
        {"smoke": "seconds", "laptop": "70 seconds of one core", "full": "half an hour"},
    ),
)
