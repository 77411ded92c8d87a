"""Solvers whose steps can be undone exactly."""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, Self

from ._dynamics import Dynamics, Evaluate, Span, Stage, State, combine
from ._runge_kutta import Solver, _fractions, checked_steps
from ._solution import Stats, Trajectory
from ._step import sides


class ReversibleSolver(Solver):
    """A fixed grid of steps on an extended state, each of which has an algebraic inverse.

    Where the field jumps between two steps, the carried slope is corrected by the jump, which
    the inverse undoes.

    Args:
        steps: how many equal steps the span is cut into.
    """

    def __init__(self, steps: int):
        self.steps = checked_steps(steps)
        # Working out exact depths takes time.
        self._known: dict[tuple[Span, tuple[float, ...]], list[list[Stage]]] = {}

    def config(self) -> dict[str, Any]:
        return {"type": type(self).__name__, "steps": self.steps}

    def with_steps(self, steps: int) -> Self:
        return type(self)(steps)

    def refined(self, factor: int) -> Self:
        return self.with_steps(self.steps * factor)

    def evaluations(self, span: Span) -> int | None:
        return self.steps + 1

    @abstractmethod
    def begin(self, evaluate: Sequence[Evaluate], z: State) -> State:
        """The extended state at the start, from the field there."""

    @abstractmethod
    def advance(self, evaluate: Sequence[Evaluate], z: State, h: float) -> State:
        """One step, from the field at the step's own stages and beyond it where it jumps."""

    @abstractmethod
    def retreat(self, evaluate: Sequence[Evaluate], z: State, h: float) -> State:
        """The inverse of `advance`."""

    @abstractmethod
    def within(self, z: State, end: State, h: float, fraction: float) -> State:
        """The state at a fraction of a step, from the extended states at its ends."""

    @abstractmethod
    def _inside(self, start: Fraction, end: Fraction) -> list[Stage]:
        """The stages of a step that does not end at a jump."""

    def before(self, span: Span, n: int) -> list[Stage]:
        """The further stages that undoing step n needs."""
        return []

    def grid(self, span: Span) -> list[Fraction]:
        """The ends of the steps."""
        start, width = Fraction(span[0]), Fraction(span[1]) - Fraction(span[0])
        return [start + width * n / self.steps for n in range(self.steps + 1)]

    def first(self, span: Span) -> list[Stage]:
        """The stage of `begin`."""
        return [Stage(Fraction(span[0]), sides(span[0], span[1])[0])]

    def fractions(self, span: Span, save_at: Sequence[float]) -> list[tuple[float, ...]]:
        """For each step the depths to save within it, as fractions of the step."""
        h = (span[1] - span[0]) / self.steps
        left = [(s - span[0]) / h for s in save_at if (s - span[0]) / h > 0]
        out = []
        for n in range(self.steps):
            out.append(_fractions(left, n, self.steps))
            left = left[len(out[-1]) :]
        return out

    def plan(self, span: Span, breakpoints: Sequence[float]) -> list[list[Stage]]:
        """The stages of every step; where the field jumps at its end, both sides are the last."""
        key = (span, tuple(breakpoints))
        if key in self._known:
            return self._known[key]
        grid, jumps = self.grid(span), {float(b) for b in breakpoints}
        out = []
        for start, end in itertools.pairwise(grid):
            stages = self._inside(start, end)
            if float(end) in jumps and end != grid[-1]:
                first, last = sides(start, end)
                stages += [Stage(end, last), Stage(end, first)]
            out.append(stages)
        self._known[key] = out
        return out

    def schedule(self, span: Span, breakpoints: Sequence[float]) -> tuple[Stage, ...]:
        return (*self.first(span), *itertools.chain(*self.plan(span, breakpoints)))

    def integrate(
        self,
        dynamics: Dynamics,
        z: State,
        span: Span,
        save_at: Sequence[float] = (),
        observe: Any = None,
    ) -> Trajectory:
        h = (span[1] - span[0]) / self.steps
        plan = self.plan(span, dynamics.breakpoints)
        every = dynamics.on_grid(lambda: self.schedule(span, dynamics.breakpoints))
        dynamics.accept()
        fractions = self.fractions(span, save_at)
        saved = [z] * (len(save_at) - sum(map(len, fractions)))
        extended, at = self.begin(every[:1], z), 1
        for n, stages in enumerate(plan):
            before = extended
            extended = self.advance(every[at : at + len(stages)], extended, h)
            at += len(stages)
            for x in fractions[n]:
                at_end = extended[: len(z)]
                saved.append(at_end if x >= 1 else self.within(before, extended, h, x))
        if observe is not None:
            observe(extended)
        stats = Stats(len(every), self.steps, step_sizes=[abs(h)] * self.steps)
        return Trajectory(extended[: len(z)], saved, stats)


def _add(z: State, *terms: tuple[State, float]) -> State:
    return combine(z, [k for k, _ in terms], [w for _, w in terms])


class ReversibleHeun(ReversibleSolver):
    r"""The reversible Heun method, order 2.

    .. math:: \hat z' = 2z - \hat z + h \hat f, \quad \hat f' = f(s + h, \hat z'), \quad
              z' = z + \tfrac h2 (\hat f + \hat f')

    Kidger et al., *Efficient and Accurate Gradients for Neural SDEs*, 2021.

    Args:
        steps: how many equal steps the span is cut into.
    """

    def _inside(self, start: Fraction, end: Fraction) -> list[Stage]:
        return [Stage(end, sides(start, end)[1])]

    def before(self, span: Span, n: int) -> list[Stage]:
        return [Stage(self.grid(span)[n], sides(span[0], span[1])[0])]

    def begin(self, evaluate: Sequence[Evaluate], z: State) -> State:
        return (*z, *z, *evaluate[0](z))

    def advance(self, evaluate: Sequence[Evaluate], z: State, h: float) -> State:
        y, w, f = _thirds(z)
        w = _add(y, (y, 1.0), (w, -1.0), (f, h))
        g = evaluate[0](w)
        y = _add(y, (f, h / 2), (g, h / 2))
        if len(evaluate) > 1:  # the field jumps here: go on with the slope beyond
            g = evaluate[2](w)
        return (*y, *w, *g)

    def retreat(self, evaluate: Sequence[Evaluate], z: State, h: float) -> State:
        y, w, g = _thirds(z)
        if len(evaluate) > 2:
            g = evaluate[0](w)
        before = _add(y, (y, 1.0), (w, -1.0), (g, -h))
        f = evaluate[-1](before)
        return (*_add(y, (g, -h / 2), (f, -h / 2)), *before, *f)

    def within(self, z: State, end: State, h: float, fraction: float) -> State:
        y, _, f = _thirds(z)
        _, _, g = _thirds(end)
        half = h * fraction * fraction / 2
        return _add(y, (f, h * fraction - half), (g, half))


class AsynchronousLeapfrog(ReversibleSolver):
    r"""The asynchronous leapfrog method, order 2, which carries the slope v along.

    .. math:: z_{1/2} = z + \tfrac h2 v, \quad v' = 2 f(s + \tfrac h2, z_{1/2}) - v, \quad
              z' = z_{1/2} + \tfrac h2 v'

    Zhuang et al., *MALI*, 2021.

    Args:
        steps: how many equal steps the span is cut into.
    """

    def _inside(self, start: Fraction, end: Fraction) -> list[Stage]:
        return [Stage((start + end) / 2, "right")]

    def begin(self, evaluate: Sequence[Evaluate], z: State) -> State:
        return (*z, *evaluate[0](z))

    def advance(self, evaluate: Sequence[Evaluate], z: State, h: float) -> State:
        y, v = _halves(z)
        middle = _add(y, (v, h / 2))
        u = evaluate[0](middle)
        v = _add(u, (u, 1.0), (v, -1.0))
        y = _add(middle, (v, h / 2))
        if len(evaluate) > 1:  # the field jumps here, and the slope with it
            v = _add(v, (evaluate[2](y), 1.0), (evaluate[1](y), -1.0))
        return (*y, *v)

    def retreat(self, evaluate: Sequence[Evaluate], z: State, h: float) -> State:
        y, v = _halves(z)
        if len(evaluate) > 2:
            v = _add(v, (evaluate[2](y), -1.0), (evaluate[1](y), 1.0))
        middle = _add(y, (v, -h / 2))
        u = evaluate[0](middle)
        v = _add(u, (u, 1.0), (v, -1.0))
        return (*_add(middle, (v, -h / 2)), *v)

    def within(self, z: State, end: State, h: float, fraction: float) -> State:
        y, v = _halves(z)
        _, w = _halves(end)
        half = h * fraction * fraction / 2
        return _add(y, (v, h * fraction - half), (w, half))


def _halves(z: State) -> tuple[State, State]:
    n = len(z) // 2
    return z[:n], z[n:]


def _thirds(z: State) -> tuple[State, State, State]:
    n = len(z) // 3
    return z[:n], z[n : 2 * n], z[2 * n :]
