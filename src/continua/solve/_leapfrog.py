from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import torch

from continua._values import value

from ._dynamics import Evaluate, Stage, State
from ._reversible import Linearize, ReverseState, ReversibleSolver, add, times
from ._step import sides


@value
class AsynchronousLeapfrog(ReversibleSolver):
    r"""The asynchronous leapfrog method, order 2, which carries the slope v along.

    .. math:: z_{1/2} = z + \tfrac h2 v, \quad v' = 2 f(s + \tfrac h2, z_{1/2}) - v, \quad
              z' = z_{1/2} + \tfrac h2 v'

    Zhuang et al., *MALI*, 2021.
    """

    def _stages(self, start: Fraction, end: Fraction, jump: bool) -> list[Stage]:
        middle, (first, last) = Stage((start + end) / 2, "right"), sides(start, end)
        return [middle, Stage(end, last), Stage(end, first)] if jump else [middle]

    def start(self, evaluate: Sequence[Evaluate], z: State) -> State:
        return (*z, *evaluate[0](z))

    def step(self, evaluate: Sequence[Evaluate], z: State, h: float) -> State:
        y, v = _halves(z)
        middle = add(y, (v, h / 2))
        v = _mirrored(evaluate[0](middle), v)
        y = add(middle, (v, h / 2))
        if len(evaluate) > 1:  # the field jumps here, and the slope with it
            v = add(v, (evaluate[2](y), 1.0), (evaluate[1](y), -1.0))
        return (*y, *v)

    def reverse_step(
        self, linearize: Linearize, stages: Sequence[Stage], end: ReverseState, h: float
    ) -> ReverseState:
        y, v = _halves(end.z)
        ay, av = _halves(end.a)
        if len(stages) > 1:  # the field jumps at the end
            left, right = linearize(stages[1], y), linearize(stages[2], y)
            ay = add(ay, (right.vjp(av), 1.0), (left.vjp(times(-1.0, av)), 1.0))
            v = add(v, (right.value, -1.0), (left.value, 1.0))
        middle = add(y, (v, -h / 2))
        u = linearize(stages[0], middle)
        av = add(av, (ay, h / 2))
        ay = add(ay, (u.vjp(times(2.0, av)), 1.0))
        v = _mirrored(u.value, v)
        y = add(middle, (v, -h / 2))
        av = add(times(-1.0, av), (ay, h / 2))
        return ReverseState((*y, *v), (*ay, *av))

    def start_vjp(self, linearize: Linearize, stage: Stage, start: ReverseState) -> State:
        ay, av = _halves(start.a)
        return add(ay, (linearize(stage, _halves(start.z)[0]).vjp(av), 1.0))


def _halves(z: State) -> tuple[State, State]:
    n = len(z) // 2
    return z[:n], z[n:]


def _mirrored(u: State, v: State) -> State:
    """2u - v, in one pass."""
    return tuple(torch.lerp(b, a, 2.0) for a, b in zip(u, v, strict=True))
