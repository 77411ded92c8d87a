"""Solvers whose steps can be undone exactly."""

from __future__ import annotations

import bisect
import itertools
from abc import abstractmethod
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, NamedTuple, Protocol, Self

import torch

from ._dynamics import Dynamics, Evaluate, Span, Stage, State, combine
from ._runge_kutta import Solver, _fractions, checked_steps
from ._solution import Stats, Trajectory
from ._step import sides


class Probe(Protocol):
    """The field at one stage and state, with its derivative at hand.

    Attributes:
        value: of the field.
    """

    value: State

    def pull(self, gradient: State) -> State:
        """The gradient of the state from that of the value; that of the weights is gathered."""
        ...


Probing = Callable[[Stage, State], Probe]


class Undone(NamedTuple):
    """How far steps are undone.

    Attributes:
        z: the extended state there.
        a: its gradient.
        field: there, if undoing the step after it had to evaluate it.
    """

    z: State
    a: State
    field: Probe | None = None


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
    def undo(self, probe: Probing, stages: Sequence[Stage], end: Undone, h: float) -> Undone:
        """The inverse of `advance` and its transpose in one, with no evaluation done twice.

        Args:
            probe: evaluates the field.
            stages: of the step, and those `before` it.
            end: of the step.
            h: the step.

        Returns:
            The start of the step.
        """

    @abstractmethod
    def unbegin(self, probe: Probing, stage: Stage, start: Undone) -> State:
        """The transpose of `begin`: the gradient of the state at the start."""

    @staticmethod
    def shares(h: float, fraction: float) -> tuple[float, float, float]:
        """What the state at a fraction of a step is made of, so that no jump at its end counts.

        The weights of the state and of the slope at the start of the step, and of the state at
        its end. The state is the first part of an extended one, the slope the last.
        """
        x = min(fraction, 1.0)
        return 1 - x * x, h * (x - x * x), x * x

    @abstractmethod
    def _inside(self, start: Fraction, end: Fraction) -> list[Stage]:
        """The stages of a step that does not end at a jump."""

    @abstractmethod
    def _across(self, start: Fraction, end: Fraction) -> list[Stage]:
        """The further stages of one that does."""

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

    def plan(self, span: Span, jumps: Sequence[float]) -> list[list[Stage]]:
        """The stages of every step, those at a jump of the field at its end among them."""
        key = (span, tuple(jumps))
        if key in self._known:
            return self._known[key]
        grid, where = self.grid(span), sorted(jumps)
        near = 1e-9 * abs(span[1] - span[0]) / self.steps  # both are rounded, each in its own way
        out = []
        for start, end in itertools.pairwise(grid):
            stages = self._inside(start, end)
            i = bisect.bisect_left(where, float(end) - near)
            if i < len(where) and where[i] <= float(end) + near and end != grid[-1]:
                stages += self._across(start, end)
            out.append(stages)
        self._known[key] = out
        return out

    def schedule(self, span: Span, jumps: Sequence[float]) -> tuple[Stage, ...]:
        return (*self.first(span), *itertools.chain(*self.plan(span, jumps)))

    def integrate(
        self,
        dynamics: Dynamics,
        z: State,
        span: Span,
        save_at: Sequence[float] = (),
        observe: Any = None,
    ) -> Trajectory:
        h = (span[1] - span[0]) / self.steps
        plan = self.plan(span, dynamics.jumps)
        every = dynamics.on_grid(lambda: self.schedule(span, dynamics.jumps))
        dynamics.accept()
        fractions = self.fractions(span, save_at)
        saved = [z] * (len(save_at) - sum(map(len, fractions)))
        extended, at = self.begin(every[:1], z), 1
        for n, stages in enumerate(plan):
            before = extended
            extended = self.advance(every[at : at + len(stages)], extended, h)
            at += len(stages)
            for x in fractions[n]:
                saved.append(self._within(before, extended, len(z), h, x))
        if observe is not None:
            observe(extended)
        stats = Stats(len(every), self.steps, step_sizes=[abs(h)] * self.steps)
        return Trajectory(extended[: len(z)], saved, stats)

    def _within(self, start: State, end: State, n: int, h: float, fraction: float) -> State:
        """The state at a fraction of a step, from the extended states at its ends."""
        if fraction >= 1:
            return end[:n]
        _, slope, last = self.shares(h, fraction)
        return _add(start[:n], (start[:n], -last), (start[-n:], slope), (end[:n], last))


def _add(z: State, *terms: tuple[State, float]) -> State:
    return combine(z, [k for k, _ in terms], [w for _, w in terms])


def _times(factor: float, z: State) -> State:
    return tuple(x * factor for x in z)


def _mirrored(u: State, v: State) -> State:
    """2u - v, in one pass."""
    return tuple(torch.lerp(b, a, 2.0) for a, b in zip(u, v, strict=True))


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

    def _across(self, start: Fraction, end: Fraction) -> list[Stage]:
        return [Stage(end, sides(start, end)[0])]

    def before(self, span: Span, n: int) -> list[Stage]:
        start, width = Fraction(span[0]), Fraction(span[1]) - Fraction(span[0])
        return [Stage(start + width * n / self.steps, sides(span[0], span[1])[0])]

    def begin(self, evaluate: Sequence[Evaluate], z: State) -> State:
        return (*z, *z, *evaluate[0](z))

    def advance(self, evaluate: Sequence[Evaluate], z: State, h: float) -> State:
        y, w, f = _thirds(z)
        w = _add(y, (y, 1.0), (w, -1.0), (f, h))
        g = evaluate[0](w)
        y = _add(y, (f, h / 2), (g, h / 2))
        if len(evaluate) > 1:  # the field jumps here: go on with the slope beyond
            g = evaluate[1](w)
        return (*y, *w, *g)

    def undo(self, probe: Probing, stages: Sequence[Stage], end: Undone, h: float) -> Undone:
        y, w, _ = _thirds(end.z)
        ay, aw, ag = _thirds(end.a)
        beyond = end.field or probe(stages[0], w)
        if len(stages) > 2:  # the field jumps here
            last = probe(stages[0], w)
            aw = _add(aw, (beyond.pull(ag), 1.0), (last.pull(_times(h / 2, ay)), 1.0))
        else:
            last = beyond
            aw = _add(aw, (last.pull(_add(ag, (ay, h / 2))), 1.0))
        g = last.value
        before = _add(y, (y, 1.0), (w, -1.0), (g, -h))
        start = probe(stages[-1], before)
        f = start.value
        af = _add(_times(h / 2, ay), (aw, h))
        ay = _add(ay, (aw, 2.0))
        z = (*_add(y, (g, -h / 2), (f, -h / 2)), *before, *f)
        return Undone(z, (*ay, *_times(-1.0, aw), *af), start)

    def unbegin(self, probe: Probing, stage: Stage, start: Undone) -> State:
        ay, aw, af = _thirds(start.a)
        field = start.field or probe(stage, _thirds(start.z)[1])
        return _add(ay, (aw, 1.0), (field.pull(af), 1.0))


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

    def _across(self, start: Fraction, end: Fraction) -> list[Stage]:
        first, last = sides(start, end)
        return [Stage(end, last), Stage(end, first)]

    def begin(self, evaluate: Sequence[Evaluate], z: State) -> State:
        return (*z, *evaluate[0](z))

    def advance(self, evaluate: Sequence[Evaluate], z: State, h: float) -> State:
        y, v = _halves(z)
        middle = _add(y, (v, h / 2))
        v = _mirrored(evaluate[0](middle), v)
        y = _add(middle, (v, h / 2))
        if len(evaluate) > 1:  # the field jumps here, and the slope with it
            v = _add(v, (evaluate[2](y), 1.0), (evaluate[1](y), -1.0))
        return (*y, *v)

    def undo(self, probe: Probing, stages: Sequence[Stage], end: Undone, h: float) -> Undone:
        y, v = _halves(end.z)
        ay, av = _halves(end.a)
        if len(stages) > 1:  # the field jumps at the end
            left, right = probe(stages[1], y), probe(stages[2], y)
            ay = _add(ay, (right.pull(av), 1.0), (left.pull(_times(-1.0, av)), 1.0))
            v = _add(v, (right.value, -1.0), (left.value, 1.0))
        middle = _add(y, (v, -h / 2))
        u = probe(stages[0], middle)
        av = _add(av, (ay, h / 2))
        ay = _add(ay, (u.pull(_times(2.0, av)), 1.0))
        v = _mirrored(u.value, v)
        y = _add(middle, (v, -h / 2))
        av = _add(_times(-1.0, av), (ay, h / 2))
        return Undone((*y, *v), (*ay, *av))

    def unbegin(self, probe: Probing, stage: Stage, start: Undone) -> State:
        ay, av = _halves(start.a)
        return _add(ay, (probe(stage, _halves(start.z)[0]).pull(av), 1.0))


def _halves(z: State) -> tuple[State, State]:
    n = len(z) // 2
    return z[:n], z[n:]


def _thirds(z: State) -> tuple[State, State, State]:
    n = len(z) // 3
    return z[:n], z[n : 2 * n], z[2 * n :]
