"""Explicit Runge-Kutta methods on equal steps."""

from __future__ import annotations

import itertools
from abc import abstractmethod
from fractions import Fraction
from typing import Any

from continua._errors import ArgumentError
from continua._values import value

from ._dynamics import Dynamics, Span, Stage, State, Take
from ._interpolant import EveryStep
from ._solver import Saves, Solver, Stats, Trajectory, cached, saved_at_start
from ._step import Scaled, Step, stages_between, step
from ._tableau import Tableau


@value
class RungeKutta(Solver):
    """An explicit method on equal steps of the span; a concrete method is its tableau.

    Args:
        steps: the number of steps.
    """

    steps: int | None

    @property
    @abstractmethod
    def tableau(self) -> Tableau:
        """The coefficients of the method, a class attribute."""

    @property
    def degree(self) -> int:
        return max(map(len, self.tableau.dense))

    def schedule(self, span: Span, jumps: tuple[float, ...]) -> tuple[Stage, ...] | None:
        return None if self.steps is None else self.stages(span)

    @cached
    def stages(self, span: Span) -> tuple[Stage, ...]:
        """Every evaluation of a solve over this span on the fixed grid, in order.

        Depths are exact: integers over the number of steps, never accumulated floats. The ends
        of a step are sampled from inside the step, so that a function which jumps there takes
        its value within the step; inside a step the side is right by convention.
        """
        if self.steps is None:
            raise ArgumentError(f"{self!r} chooses its own steps: it has no fixed grid")
        ends, tableau = grid(span, self.steps), self.tableau
        steps = (stages_between(tableau, a, b) for a, b in itertools.pairwise(ends))
        return tuple(stage for step in steps for stage in step[: tableau.stages])

    def integrate(
        self, dynamics: Dynamics, z: State, span: Span, save_at: Saves = (), observe: Any = None
    ) -> Trajectory:
        assert self.steps is not None
        h, count = (span[1] - span[0]) / self.steps, self.tableau.stages
        take = self._step_function(dynamics, span, h)
        dynamics.accept()
        if not save_at and observe is None:
            for n in range(self.steps):
                z = take(n, z)[0]  # the slopes are freed at once
            stats = Stats(self.steps * count, self.steps, step_sizes=[abs(h)] * self.steps)
            return Trajectory(z, [], stats)
        ends, fractions = grid(span, self.steps), self.fractions(span, save_at)
        saved, stats = saved_at_start(z, save_at, sum(map(len, fractions))), Stats()
        every = save_at if isinstance(save_at, EveryStep) else None
        for n, (start, end) in enumerate(itertools.pairwise(ends)):
            before = z
            z, ks = take(n, z)
            stats.evaluations += count
            stats.steps += 1
            stats.step_sizes.append(abs(h))
            made = Step(self.tableau, start, end, before, z, ks, fractions[n])
            states = made.saved(dynamics, stats)
            saved += states
            if observe is not None:
                observe(made)
            if every and every.stops(float(start), float(end), states):
                break
        taken = list(map(float, ends[: stats.steps + 1])) if every else []
        return Trajectory(z, saved, stats, ends=taken)

    def _step_function(self, dynamics: Dynamics, span: Span, h: float) -> Take:
        if dynamics.steps is not None:
            return dynamics.steps.on_grid(h, self.stages(span))
        evaluate = dynamics.on_grid(lambda: self.stages(span))
        scaled, count = Scaled(self.tableau, h), self.tableau.stages

        def take(n: int, z: State) -> tuple[State, list[State]]:
            ks: list[State] = []
            return step(scaled, evaluate[n * count : (n + 1) * count], z, ks), ks

        return take


@value
class Euler(RungeKutta):
    """The forward Euler method, order 1. With one bucket per step it is a ResNet."""

    tableau = Tableau(c=[0], a=[[]], dense=[[1]], order=1)


@value
class Midpoint(RungeKutta):
    """The explicit midpoint method, order 2."""

    tableau = Tableau(c=[0, "1/2"], a=[[], ["1/2"]], dense=[[1, -1], [0, 1]], order=2)


@value
class Heun(RungeKutta):
    """Heun's method, the explicit trapezoidal rule, order 2."""

    tableau = Tableau(c=[0, 1], a=[[], [1]], dense=[[1, "-1/2"], [0, "1/2"]], order=2)


@value
class RK4(RungeKutta):
    """The classical Runge-Kutta method, order 4."""

    tableau = Tableau(
        c=[0, "1/2", "1/2", 1],
        a=[[], ["1/2"], [0, "1/2"], [0, 0, 1]],
        dense=[[1, "-3/2", "2/3"], [0, 1, "-2/3"], [0, 1, "-2/3"], [0, "-1/2", "2/3"]],
        order=4,
    )


@value
class RK38(RungeKutta):
    """Kutta's 3/8 rule, order 4, with somewhat smaller errors than `RK4`."""

    tableau = Tableau(
        c=[0, "1/3", "2/3", 1],
        a=[[], ["1/3"], ["-1/3", 1], [1, -1, 1]],
        dense=[[1, "-15/8", 1], [0, "15/8", "-3/2"], [0, "3/8"], [0, "-3/8", "1/2"]],
        order=4,
    )


def grid(span: Span, steps: int) -> tuple[Fraction, ...]:
    """The ends of equal steps."""
    start, width = Fraction(span[0]), Fraction(span[1]) - Fraction(span[0])
    return tuple(start + width * n / steps for n in range(steps + 1))
