from __future__ import annotations

from collections.abc import Sequence

import torch

from continua._errors import ArgumentError
from continua.solve import (
    Dynamics,
    Evaluate,
    ReversibleSolver,
    Solver,
    Span,
    State,
    Stats,
    Trajectory,
)

from ._gradient import Gradient, Job, added, leaf, or_zero, vector_jacobian


class Reversible(Gradient):
    """Undo the steps of a reversible solver one by one: exact, with constant memory.

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

    def check_noise(self) -> None:
        raise ArgumentError(
            "steps with noise such as dropout cannot be undone: use Checkpoint() or Backprop(), "
            "or evaluation mode"
        )

    def forward(self, z: State) -> Trajectory:
        self.plan = self.solver.plan(self.span, self.dynamics.breakpoints)
        return self.solver.integrate(
            self.dynamics, z, self.span, self.save_at, observe=self.stored.extend
        )

    def backward(self, final: State, saved: list[State], stats: Stats) -> State:
        solver, n_leaves = self.solver, self.leaves
        h = (self.span[1] - self.span[0]) / solver.steps
        z: State = tuple(self.stored)
        a: State = (*final, *(torch.zeros_like(x) for x in z[n_leaves:]))
        first = solver.first(self.span)
        fractions = solver.fractions(self.span, self.save_at)
        for n in reversed(range(solver.steps)):
            stages = self.plan[n]
            with torch.no_grad():
                undo = self._undoing(n)
                z = solver.retreat(undo, z, h)
                stats.evaluations += 1
            inside = [(x, saved.pop()) for x in reversed(fractions[n])]
            reading = self.dynamics.read(stages)
            stats.evaluations += len(stages)
            with torch.enable_grad():
                start = leaf(z)
                end = solver.advance(reading.evaluate, start, h)
                outputs, along = [end], [a]
                for x, gradient in inside:
                    outputs.append(end[:n_leaves] if x >= 1 else solver.within(start, end, h, x))
                    along.append(gradient)
            gradients = vector_jacobian(outputs, [*start, *reading.leaves], along)
            reading.pull(gradients[len(start) :])
            a = or_zero(gradients[: len(start)], start)
            stats.steps += 1
        reading = self.dynamics.read(first)
        stats.evaluations += len(first)
        with torch.enable_grad():
            start = leaf(z[:n_leaves])
            extended = solver.begin(reading.evaluate, start)
        gradients = vector_jacobian([extended], [*start, *reading.leaves], [a])
        reading.pull(gradients[len(start) :])
        out = or_zero(gradients[: len(start)], start)
        for gradient in saved:  # what is left was asked for at the very start
            out = added(out, gradient)
        return out

    def _undoing(self, n: int) -> Sequence[Evaluate]:
        """The field at the stages that undoing step n needs, in the order `retreat` takes them."""
        stages = self.plan[n]
        before = self.solver.before(self.span, n)
        return self.dynamics.read([*stages, *before], leaves=False).evaluate
