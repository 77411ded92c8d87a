"""Explicit Runge-Kutta methods on a fixed grid."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, ClassVar, Literal, NamedTuple, Self

import torch
from torch import Tensor

from continua._errors import ArgumentError

from ._solution import Solution, Stats
from ._tableau import Tableau

Span = tuple[float, float]


class Stage(NamedTuple):
    """One evaluation of the field: an exact depth, and the side from which it is sampled."""

    depth: Fraction
    side: Literal["left", "right"]


class Solver(ABC):
    """How a trajectory is computed. A solver is a value: equal arguments, equal solvers."""

    @abstractmethod
    def config(self) -> dict[str, Any]:
        """The kind and its arguments, ready for JSON; `solver_from_config` is the inverse."""

    @abstractmethod
    def with_steps(self, steps: int) -> Self:
        """The same method with another number of steps."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Solver) and self.config() == other.config()

    def __hash__(self) -> int:
        return hash(tuple(self.config().items()))

    def __repr__(self) -> str:
        kind, *arguments = self.config().items()
        return f"{kind[1]}({', '.join(f'{name}={value!r}' for name, value in arguments)})"


class RungeKutta(Solver):
    """An explicit method on equal steps; a concrete method is its tableau.

    Args:
        steps: how many equal steps the span is cut into.
    """

    tableau: ClassVar[Tableau]

    def __init__(self, steps: int):
        if isinstance(steps, bool) or not isinstance(steps, int) or steps < 1:
            raise ArgumentError(f"steps is a whole number of at least 1, not {steps!r}")
        self.steps = steps

    def config(self) -> dict[str, Any]:
        return {"type": type(self).__name__, "steps": self.steps}

    def with_steps(self, steps: int) -> Self:
        return type(self)(steps)

    def stages(self, span: Span) -> tuple[Stage, ...]:
        """Every evaluation of a solve over this span, in order.

        Depths are exact: integers over the number of steps, never accumulated floats. The ends
        of a step are sampled from inside the step, so that a function which jumps there is read
        in the step's own cell; inside a step the side is right by convention.
        """
        start, width = Fraction(span[0]), Fraction(span[1]) - Fraction(span[0])
        sides: tuple[Literal["left", "right"], ...] = ("right", "left")
        first, last = sides if width > 0 else sides[::-1]
        side = {Fraction(0): first, Fraction(1): last}
        return tuple(
            Stage(start + width * (n + c) / self.steps, side.get(c, "right"))
            for n in range(self.steps)
            for c in self.tableau.c
        )

    def advance(self, f: Callable[[int, Tensor], Tensor], z: Tensor, span: Span) -> Tensor:
        """The state at the end of the span.

        Args:
            f: the field, called as f(i, z) at evaluation i of `stages`.
            z: the state at the start.
            span: from where to where.
        """
        step = self._stepper(f, span)
        for n in range(self.steps):
            z = step(n, z)[0]
        return z

    def solve(
        self,
        f: Callable[[int, Tensor], Tensor],
        z: Tensor,
        span: Span,
        save_at: Sequence[float],
    ) -> Solution:
        """The trajectory at the depths of `save_at`, which run along the span.

        Depths between two grid points come from the method's continuous extension.
        """
        step = self._stepper(f, span)
        h = (span[1] - span[0]) / self.steps
        positions = [(s - span[0]) / h for s in save_at]
        saved = [z for position in positions if position <= 0]
        for n in range(self.steps):
            before = z
            z, ks = step(n, before)
            for position in positions[len(saved) :]:
                if position > n + 1 + 1e-9 and n + 1 < self.steps:
                    break
                theta = min(position - n, 1.0)
                if theta > 1 - 1e-9:
                    saved.append(z)
                else:
                    saved.append(_combine(before, ks, [h * w for w in self.tableau.weights(theta)]))
        return Solution(
            s=torch.tensor(save_at, dtype=torch.float64, device=z.device),
            z=torch.stack(saved) if saved else z.new_empty(0, *z.shape),
            final=z,
            stats=Stats(evaluations=self.steps * self.tableau.stages, steps=self.steps),
        )

    def _stepper(
        self, f: Callable[[int, Tensor], Tensor], span: Span
    ) -> Callable[[int, Tensor], tuple[Tensor, list[Tensor]]]:
        """A function from (step, state) to (next state, stages), its coefficients worked out."""
        h = (span[1] - span[0]) / self.steps
        rows = [[h * float(a) for a in row] for row in self.tableau.a]
        weights = [h * float(b) for b in self.tableau.b]
        count = self.tableau.stages

        def step(n: int, z: Tensor) -> tuple[Tensor, list[Tensor]]:
            ks: list[Tensor] = []
            for i, row in enumerate(rows):
                ks.append(f(n * count + i, _combine(z, ks, row)))
            return _combine(z, ks, weights), ks

        return step


def _combine(z: Tensor, ks: list[Tensor], weights: Sequence[float]) -> Tensor:
    """Z + Σ w_i k_i; only the first sum allocates, and no sum is needed by a backward pass."""
    out = None
    for k, w in zip(ks, weights, strict=False):
        if w == 0:
            continue
        out = torch.add(z, k, alpha=w) if out is None else out.add_(k, alpha=w)
    return z if out is None else out
