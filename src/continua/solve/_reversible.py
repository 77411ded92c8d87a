"""Solvers whose steps can be reversed exactly."""

from __future__ import annotations

import functools
import itertools
from abc import abstractmethod
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, NamedTuple, Protocol

import torch

from continua._values import value

from ._dynamics import Depths, Dynamics, Evaluate, Span, Stage, State, combine
from ._runge_kutta import grid
from ._solver import Solver, Stats, Trajectory
from ._step import sides


class Linearized(Protocol):
    """The field at one stage and state, and its vjp."""

    value: State

    def vjp(self, gradient: State) -> State:
        """The gradient of the state from that of the value; that of the weights is gathered."""


Linearize = Callable[[Stage, State], Linearized]


class ReverseState(NamedTuple):
    """Where a reverse pass stands."""

    z: State  # the extended state
    a: State  # its gradient
    field: Linearized | None = None  # the field, if the last reverse step had to evaluate it


@value
class ReversibleSolver(Solver):
    """A fixed grid of steps on an extended state, each of which has an algebraic inverse.

    Where the field jumps between two steps, the slope in the extended state is corrected by the
    jump, and the inverse takes the correction back.
    """

    steps: int

    def evaluations(self, span: Span) -> int | None:
        return self.steps + 1

    @abstractmethod
    def start(self, evaluate: Sequence[Evaluate], z: State) -> State:
        """The extended state at the start, from the field there."""

    @abstractmethod
    def step(self, evaluate: Sequence[Evaluate], z: State, h: float) -> State:
        """One step, from the field at the step's own stages and beyond it where it jumps."""

    @abstractmethod
    def reverse_step(
        self, linearize: Linearize, stages: Sequence[Stage], end: ReverseState, h: float
    ) -> ReverseState:
        """The start of a step from its end: the inverse of `step` and its vjp in one.

        The stages are those of the step, then those `before` it. No evaluation is done twice.
        """

    @abstractmethod
    def start_vjp(self, linearize: Linearize, stage: Stage, start: ReverseState) -> State:
        """The vjp of `start`: the gradient of the state at the start."""

    @staticmethod
    def shares(h: float, fraction: float) -> tuple[float, float, float]:
        """What the state at a fraction of a step is made of, so that no jump at its end counts.

        The weights of the state and of the slope at the start of the step, and of the state at
        its end. The state is the first part of an extended one, the slope the last.
        """
        x = min(fraction, 1.0)
        return 1 - x * x, h * (x - x * x), x * x

    @abstractmethod
    def _stages(self, start: Fraction, end: Fraction, jump: bool) -> list[Stage]:
        """The stages of a step, further ones among them if the field jumps at its end."""

    def before(self, span: Span, n: int) -> list[Stage]:
        """The further stages that reversing step n needs."""
        return []

    def first(self, span: Span) -> list[Stage]:
        """The stage of `start`."""
        return [Stage(Fraction(span[0]), sides(span[0], span[1])[0])]

    def plan(self, span: Span, jumps: Depths) -> tuple[tuple[Stage, ...], ...]:
        """The stages of every step, those at a jump of the field at its end among them."""
        # Compiled code keeps no cache.
        return (_plan if torch.compiler.is_compiling() else _known_plan)(self, span, tuple(jumps))

    def schedule(self, span: Span, jumps: Depths) -> tuple[Stage, ...]:
        return (*self.first(span), *itertools.chain(*self.plan(span, jumps)))

    def integrate(
        self, dynamics: Dynamics, z: State, span: Span, save_at: Depths = (), observe: Any = None
    ) -> Trajectory:
        h = (span[1] - span[0]) / self.steps
        plan = self.plan(span, dynamics.jumps)
        every = dynamics.on_grid(lambda: self.schedule(span, dynamics.jumps))
        dynamics.accept()
        fractions = self.fractions(span, save_at)
        saved = [z] * (len(save_at) - sum(map(len, fractions)))
        extended, at = self.start(every[:1], z), 1
        for n, stages in enumerate(plan):
            before = extended
            extended = self.step(every[at : at + len(stages)], extended, h)
            at += len(stages)
            saved += [self._between(before, extended, len(z), h, x) for x in fractions[n]]
        if observe is not None:
            observe(extended)
        stats = Stats(len(every), self.steps, step_sizes=[abs(h)] * self.steps)
        return Trajectory(extended[: len(z)], saved, stats)

    def _between(self, start: State, end: State, n: int, h: float, fraction: float) -> State:
        """The state at a fraction of a step, from the extended states at its ends."""
        if fraction >= 1:
            return end[:n]
        _, slope, last = self.shares(h, fraction)
        return add(start[:n], (start[:n], -last), (start[-n:], slope), (end[:n], last))


def _plan(
    solver: ReversibleSolver, span: Span, jumps: tuple[float, ...]
) -> tuple[tuple[Stage, ...], ...]:
    ends = grid(span, solver.steps)
    near = 1e-9 * abs(span[1] - span[0]) / solver.steps  # both are rounded, each in its own way
    out = []
    for start, end in itertools.pairwise(ends):
        low, high = float(end) - near, float(end) + near
        jump = end != ends[-1] and any(low <= where <= high for where in jumps)
        out.append(tuple(solver._stages(start, end, jump)))
    return tuple(out)


_known_plan = functools.lru_cache(maxsize=128)(_plan)  # exact depths take time


def add(z: State, *terms: tuple[State, float]) -> State:
    """A state and some multiples of others."""
    return combine(z, [k for k, _ in terms], [(i, w) for i, (_, w) in enumerate(terms)])


def times(factor: float, z: State) -> State:
    """A multiple of a state."""
    return tuple(x * factor for x in z)
