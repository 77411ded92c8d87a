"""Explicit Runge-Kutta methods."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, ClassVar, Self

from torch import Tensor

from continua._errors import ArgumentError

from ._dynamics import Dynamics, Map, Span, Stage, State, Terms, combine, nonzero, total
from ._solution import Stats, Trajectory
from ._step import Observer, Step, scaled, stages_between
from ._tableau import Tableau


class Solver(ABC):
    """How a trajectory is computed. A solver is a value: equal arguments, equal solvers."""

    @abstractmethod
    def config(self) -> dict[str, Any]:
        """The kind and its arguments, ready for JSON; `solver_from_config` is the inverse."""

    @abstractmethod
    def with_steps(self, steps: int) -> Self:
        """The same method on a fixed grid of so many steps."""

    @abstractmethod
    def refined(self, factor: int) -> Self:
        """The solver for a basis that is finer by this factor."""

    @abstractmethod
    def evaluations(self, span: Span) -> int | None:
        """How often a solve over this span calls the field; None if that is not known before."""

    @abstractmethod
    def schedule(self, span: Span, jumps: Sequence[float]) -> tuple[Stage, ...] | None:
        """Every evaluation of a solve, in order; None if the solver finds its own way.

        Args:
            span: from where to where.
            jumps: where the field may jump.
        """

    @abstractmethod
    def integrate(
        self,
        dynamics: Dynamics,
        z: State,
        span: Span,
        save_at: Sequence[float] = (),
        observe: Observer | None = None,
    ) -> Trajectory:
        """Follow the field from one end of the span to the other.

        Args:
            dynamics: the field.
            z: the state at the start.
            span: from where to where.
            save_at: depths along the span whose states to return.
            observe: called with every step that is taken.
        """

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
    steps: int | None

    def __init__(self, steps: int):
        self.steps = checked_steps(steps)
        self._known: dict[Span, tuple[Stage, ...]] = {}  # working out exact depths takes time

    def config(self) -> dict[str, Any]:
        return {"type": type(self).__name__, "steps": self.steps}

    def with_steps(self, steps: int) -> Self:
        return type(self)(steps=steps)

    def refined(self, factor: int) -> Self:
        return self if self.steps is None else self.with_steps(self.steps * factor)

    def starting(self, first_step: float) -> Self:
        """The same method from a first step that is known to be good, where it has a choice."""
        return self

    def evaluations(self, span: Span) -> int | None:
        return None if self.steps is None else self.steps * self.tableau.stages

    def schedule(self, span: Span, jumps: Sequence[float]) -> tuple[Stage, ...] | None:
        return None if self.steps is None else self.stages(span)

    def stages(self, span: Span) -> tuple[Stage, ...]:
        """Every evaluation of a solve over this span on the fixed grid, in order.

        Depths are exact: integers over the number of steps, never accumulated floats. The ends
        of a step are sampled from inside the step, so that a function which jumps there is read
        in the step's own cell; inside a step the side is right by convention.
        """
        if span not in self._known:
            grid, count = self._grid(span), self.tableau.stages
            self._known[span] = tuple(
                stage
                for start, end in itertools.pairwise(grid)
                for stage in stages_between(self.tableau, start, end)[:count]
            )
        return self._known[span]

    def _grid(self, span: Span) -> list[Fraction]:
        steps = self._fixed()
        start, width = Fraction(span[0]), Fraction(span[1]) - Fraction(span[0])
        return [start + width * n / steps for n in range(steps + 1)]

    def _fixed(self) -> int:
        if self.steps is None:
            raise ArgumentError(f"{self!r} chooses its own steps: it has no fixed grid")
        return self.steps

    def integrate(
        self,
        dynamics: Dynamics,
        z: State,
        span: Span,
        save_at: Sequence[float] = (),
        observe: Observer | None = None,
    ) -> Trajectory:
        taken = self._fixed()
        # A short way for the usual case, where the time between evaluations counts.
        if len(z) == 1 and observe is None and not save_at:
            maps = dynamics.maps()
            if maps is not None:
                dynamics.accept()
                h = (span[1] - span[0]) / taken
                return Trajectory((self.march(maps, z[0], self.terms(h)),), [], self._stats(h))
        evaluate = dynamics.on_grid(lambda: self.stages(span))
        dynamics.accept()
        h = (span[1] - span[0]) / taken
        stats = self._stats(h)
        positions = [(s - span[0]) / h for s in save_at]
        saved = [z for position in positions if position <= 0]
        count = self.tableau.stages
        rows, weights = scaled(self.tableau, h)
        for n in range(taken):
            ks = [evaluate[n * count](z)]
            for i in range(1, count):
                ks.append(evaluate[n * count + i](combine(z, ks, rows[i])))
            before, z = z, combine(z, ks, weights)
            if not positions and observe is None:
                continue
            fractions = _fractions(positions[len(saved) :], n, taken)
            if fractions or observe is not None:
                start, end = self._grid(span)[n : n + 2]
                made = Step(self.tableau, start, end, before, z, ks, fractions)
                if fractions:
                    saved += within(dynamics, made, stats)
                if observe is not None:
                    observe(made)
        return Trajectory(z, saved, stats)

    def march(self, maps: Sequence[Map], z: Tensor, terms: tuple[list[Terms], Terms]) -> Tensor:
        """The state after all steps of the fixed grid.

        Args:
            maps: the field at every stage.
            z: the state at the start.
            terms: of a step of this length.
        """
        inner, update = terms
        remaining = iter(maps)
        for f in remaining:
            ks = [f(z)]
            for row in inner:
                ks.append(next(remaining)(total(z, ks, row)))
            z = total(z, ks, update)
        return z

    def terms(self, h: float) -> tuple[list[Terms], Terms]:
        """What each inner stage adds to the state, and what a step does, for this signed length."""
        rows, weights = scaled(self.tableau, h)
        return [nonzero(row) for row in rows[1 : self.tableau.stages]], nonzero(weights)

    def _stats(self, h: float) -> Stats:
        taken = self._fixed()
        return Stats(taken * self.tableau.stages, taken, step_sizes=[abs(h)] * taken)


def checked_steps(steps: Any, name: str = "steps") -> int:
    """The number of steps, if it is one."""
    if isinstance(steps, bool) or not isinstance(steps, int) or steps < 1:
        raise ArgumentError(f"{name} is a whole number of at least 1, not {steps!r}")
    return steps


def within(dynamics: Dynamics, made: Step, stats: Stats) -> list[State]:
    """The states that a step was asked to save, by its continuous extension."""
    if any(fraction < 1 for fraction in made.fractions):
        made.complete(dynamics, stats)
    return [made.end_state if x >= 1 else made.at(x) for x in made.fractions]


def _fractions(positions: Sequence[float], n: int, last: int) -> tuple[float, ...]:
    """Which of the remaining positions lie in step n, as fractions of it."""
    out = []
    for position in positions:
        if position > n + 1 + 1e-9 and n + 1 < last:
            break
        fraction = position - n
        out.append(1.0 if fraction > 1 - 1e-9 else fraction)
    return tuple(out)
