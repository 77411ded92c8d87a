from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from continua._values import value

from ._dynamics import Evaluate, Span, Stage, State
from ._reversible import Linearize, ReverseState, ReversibleSolver, add, times
from ._step import sides


@value
class ReversibleHeun(ReversibleSolver):
    r"""The reversible Heun method, order 2.

    .. math:: \hat z' = 2z - \hat z + h \hat f, \quad \hat f' = f(s + h, \hat z'), \quad
              z' = z + \tfrac h2 (\hat f + \hat f')

    Kidger et al., *Efficient and Accurate Gradients for Neural SDEs*, 2021.
    """

    def _stages(self, start: Fraction, end: Fraction, jump: bool) -> list[Stage]:
        first, last = sides(start, end)
        return [Stage(end, last), Stage(end, first)] if jump else [Stage(end, last)]

    def before(self, span: Span, n: int) -> list[Stage]:
        start, width = Fraction(span[0]), Fraction(span[1]) - Fraction(span[0])
        return [Stage(start + width * n / self.steps, sides(span[0], span[1])[0])]

    def start(self, evaluate: Sequence[Evaluate], z: State) -> State:
        return (*z, *z, *evaluate[0](z))

    def step(self, evaluate: Sequence[Evaluate], z: State, h: float) -> State:
        y, w, f = _thirds(z)
        w = add(y, (y, 1.0), (w, -1.0), (f, h))
        g = evaluate[0](w)
        y = add(y, (f, h / 2), (g, h / 2))
        if len(evaluate) > 1:  # the field jumps here: go on with the slope beyond
            g = evaluate[1](w)
        return (*y, *w, *g)

    def reverse_step(
        self, linearize: Linearize, stages: Sequence[Stage], end: ReverseState, h: float
    ) -> ReverseState:
        y, w, _ = _thirds(end.z)
        ay, aw, ag = _thirds(end.a)
        beyond = end.field or linearize(stages[0], w)
        if len(stages) > 2:  # the field jumps here
            last = linearize(stages[0], w)
            aw = add(aw, (beyond.vjp(ag), 1.0), (last.vjp(times(h / 2, ay)), 1.0))
        else:
            last = beyond
            aw = add(aw, (last.vjp(add(ag, (ay, h / 2))), 1.0))
        g = last.value
        before = add(y, (y, 1.0), (w, -1.0), (g, -h))
        start = linearize(stages[-1], before)
        f = start.value
        af = add(times(h / 2, ay), (aw, h))
        ay = add(ay, (aw, 2.0))
        z = (*add(y, (g, -h / 2), (f, -h / 2)), *before, *f)
        return ReverseState(z, (*ay, *times(-1.0, aw), *af), start)

    def start_vjp(self, linearize: Linearize, stage: Stage, start: ReverseState) -> State:
        ay, aw, af = _thirds(start.a)
        field = start.field or linearize(stage, _thirds(start.z)[1])
        return add(ay, (aw, 1.0), (field.vjp(af), 1.0))


def _thirds(z: State) -> tuple[State, State, State]:
    n = len(z) // 3
    return z[:n], z[n : 2 * n], z[2 * n :]
