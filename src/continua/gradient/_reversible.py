from __future__ import annotations

from collections.abc import Sequence

import torch

from continua._errors import ArgumentError
from continua._values import value
from continua.solve import (
    Dynamics,
    Linearized,
    Reading,
    Rerun,
    ReverseState,
    ReversibleSolver,
    Solver,
    Span,
    Stage,
    State,
    Stats,
    Trajectory,
    combine,
)

from ._gradient import Gradient, Job, added, leaf, or_zero, vector_jacobian


@value
class Reversible(Gradient):
    """Reverse the steps of a reversible solver one by one: exact, with constant memory.

    Needs `ReversibleHeun` or `AsynchronousLeapfrog`. The gradient is that of `Backprop` up to
    rounding errors of the reconstruction.
    """

    def check(self, solver: Solver, dynamics: Dynamics) -> None:
        if not isinstance(solver, ReversibleSolver):
            raise ArgumentError(
                f"Reversible() needs ReversibleHeun or AsynchronousLeapfrog, not {solver!r}"
            )

    def solve(
        self, solver: Solver, dynamics: Dynamics, z: State, span: Span, save_at: Sequence[float]
    ) -> Trajectory:
        return _ReversibleJob(solver, dynamics, span, save_at, len(z)).run(z)


class _ReversibleJob(Job):
    solver: ReversibleSolver

    noise = (
        "steps with noise such as dropout cannot be reversed: use Checkpoint() or Backprop(), "
        "or evaluation mode"
    )

    def forward(self, z: State) -> Trajectory:
        self.plan = self.solver.plan(self.span, self.dynamics.jumps)
        return self.solver.integrate(
            self.dynamics, z, self.span, self.save_at, observe=self.stored.extend
        )

    def backward(self, again: Rerun, final: State, saved: list[State], stats: Stats) -> State:
        solver, n = self.solver, self.leaves
        h = (self.span[1] - self.span[0]) / solver.steps
        z: State = tuple(self.stored)
        at = ReverseState(z, (*final, *(torch.zeros_like(x) for x in z[n:])))
        fractions = solver.fractions(self.span, self.save_at)

        def linearize(stage: Stage, state: State) -> Linearized:
            stats.evaluations += 1
            return _Linearized(again.read([stage]), state)

        for step in reversed(range(solver.steps)):
            inside = [(solver.shares(h, x), saved.pop()) for x in reversed(fractions[step])]
            for (_, _, last), gradient in inside:
                at = at._replace(a=_shared(at.a, gradient, last, 0.0))
            stages = [*self.plan[step], *solver.before(self.span, step)]
            at = solver.reverse_step(linearize, stages, at, h)
            for (state, slope, _), gradient in inside:
                at = at._replace(a=_shared(at.a, gradient, state, slope))
            stats.steps += 1
        out = solver.start_vjp(linearize, solver.first(self.span)[0], at)
        for gradient in saved:  # what is left was asked for at the very start
            out = added(out, gradient)
        return out


class _Linearized(Linearized):
    """The field at one stage and state, with the graph that made it."""

    def __init__(self, reading: Reading, state: State):
        self._reading, self._start = reading, leaf(state)
        with torch.enable_grad():
            self._end = reading.evaluate[0](self._start)
        self.value = tuple(x.detach() for x in self._end)

    def vjp(self, gradient: State) -> State:
        inputs = [*self._start, *self._reading.leaves]
        found = vector_jacobian([self._end], inputs, [gradient])
        self._reading.pull(found[len(self._start) :])
        return or_zero(found[: len(self._start)], self._start)


def _shared(a: State, gradient: State, state: float, slope: float) -> State:
    """A gradient, shared out to the state and the slope of an extended one."""
    n = len(gradient)
    first = combine(a[:n], [gradient], [(0, state)])
    return (*first, *a[n:-n], *combine(a[-n:], [gradient], [(0, slope)]))
