"""Solvers whose steps can be reversed exactly."""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, ClassVar

from continua._values import value

from ._dynamics import Dynamics, Evaluate, Span, Stage, State, Weights, linear
from ._interpolant import EveryStep
from ._runge_kutta import grid
from ._solver import Saves, Solver, Stats, Trajectory, cached, saved_at_start
from ._step import sides


@value
class ReversibleSolver(Solver):
    r"""A fixed grid of steps on an extended state, each of which has an algebraic inverse.

    The extended state has parts p, of which the state is the first and its slope the last. A step
    evaluates the field once and is linear otherwise. Its inverse is the same step with -h.

    .. math:: q = \sum_j c_j p_j, \qquad k = f(q), \qquad p_i' = \sum_j m_{ij} p_j + n_i q + b_i k

    Where the field jumps between two steps, the jump is added to the slope; the inverse subtracts
    it.

    Args:
        steps: the number of steps.
    """

    steps: int
    degree: ClassVar[int] = 2
    parts: ClassVar[int]
    place: ClassVar[Fraction]  #: the fraction of a step at which k is evaluated

    @abstractmethod
    def rows(self, h: float) -> tuple[Weights, Sequence[Weights]]:
        """The weights c, and a row [m_i, n_i, b_i] for each part."""

    def advance(self, parts: Sequence[State], q: State, k: State, h: float) -> list[State]:
        """The parts at the end of a step."""
        return [linear(row, [*parts, q, k]) for row in self.rows(h)[1]]

    def step(self, evaluate: Sequence[Evaluate], parts: Sequence[State], h: float) -> list[State]:
        """One step, given the field at its own stage and at those of a jump at its end."""
        own, *jump = evaluate
        q = linear(self.rows(h)[0], parts)
        out = self.advance(parts, q, own(q), h)
        if jump:
            values = [f(out[-2]) for f in jump]
            out[-1] = linear([1, -1, 1], [out[-1], *values]) if len(values) > 1 else values[0]
        return out

    @staticmethod
    def interpolation_weights(h: float, fraction: float) -> tuple[float, float, float]:
        """The weights that interpolate the state at a fraction of a step.

        They are those of the state and the slope at the start, and of the state at the end. The
        slope at the end has none, since the field may jump there.
        """
        x = min(fraction, 1.0)
        return 1 - x * x, h * (x - x * x), x * x

    def start_stage(self, span: Span, n: int) -> Stage:
        """The start of step n, sampled from inside."""
        start, width = Fraction(span[0]), Fraction(span[1]) - Fraction(span[0])
        return Stage(start + width * n / self.steps, sides(*span)[0])

    @cached
    def plan(self, span: Span, jumps: tuple[float, ...]) -> tuple[tuple[Stage, ...], ...]:
        """The stages of every step: its own, then those at a jump of the field at its end."""
        ends, (first, last) = grid(span, self.steps), sides(*span)
        near = 1e-9 * abs(span[1] - span[0]) / self.steps  # depths and jumps are rounded
        plan = []
        for start, end in itertools.pairwise(ends):
            at_end = self.place == 1
            stages = [Stage(start + (end - start) * self.place, last if at_end else "right")]
            if end != ends[-1] and any(abs(float(end) - jump) <= near for jump in jumps):
                stages += [Stage(end, first)] if at_end else [Stage(end, last), Stage(end, first)]
            plan.append(tuple(stages))
        return tuple(plan)

    def schedule(self, span: Span, jumps: tuple[float, ...]) -> tuple[Stage, ...]:
        return (self.start_stage(span, 0), *itertools.chain(*self.plan(span, jumps)))

    def integrate(
        self, dynamics: Dynamics, z: State, span: Span, save_at: Saves = (), observe: Any = None
    ) -> Trajectory:
        h = (span[1] - span[0]) / self.steps
        plan = self.plan(span, dynamics.jumps)
        every = dynamics.on_grid(lambda: self.schedule(span, dynamics.jumps))
        dynamics.accept()
        fractions = self.fractions(span, save_at)
        saved = saved_at_start(z, save_at, sum(map(len, fractions)))
        parts, at = [*[z] * (self.parts - 1), every[0](z)], 1
        for n, stages in enumerate(plan):
            before, parts = parts, self.step(every[at : at + len(stages)], parts, h)
            at += len(stages)
            for x in fractions[n]:
                ends = [before[0], before[-1], parts[0]]
                saved.append(parts[0] if x >= 1 else linear(self.interpolation_weights(h, x), ends))
        if observe is not None:
            observe(parts)
        stats = Stats(len(every), self.steps, step_sizes=[abs(h)] * self.steps)
        known = grid(span, self.steps) if isinstance(save_at, EveryStep) else ()
        return Trajectory(parts[0], saved, stats, ends=list(map(float, known)))


@value
class ReversibleHeun(ReversibleSolver):
    r"""The reversible Heun method, order 2.

    .. math:: \hat z' = 2z - \hat z + h \hat f, \quad \hat f' = f(s + h, \hat z'), \quad
              z' = z + \tfrac h2 (\hat f + \hat f')

    Kidger et al., *Efficient and Accurate Gradients for Neural SDEs*, 2021.
    """

    parts = 3
    place = Fraction(1)

    def rows(self, h: float) -> tuple[Weights, Sequence[Weights]]:
        return [2, -1, h], [[1, 0, h / 2, 0, h / 2], [0, 0, 0, 1, 0], [0, 0, 0, 0, 1]]


@value
class AsynchronousLeapfrog(ReversibleSolver):
    r"""The asynchronous leapfrog method, order 2, which carries the slope v along.

    .. math:: z_{1/2} = z + \tfrac h2 v, \quad v' = 2 f(s + \tfrac h2, z_{1/2}) - v, \quad
              z' = z_{1/2} + \tfrac h2 v'

    Zhuang et al., *MALI*, 2021.
    """

    parts = 2
    place = Fraction(1, 2)

    def rows(self, h: float) -> tuple[Weights, Sequence[Weights]]:
        return [1, h / 2], [[1, 0, 0, h], [0, -1, 0, 2]]
