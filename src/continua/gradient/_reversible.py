from __future__ import annotations

import itertools

import torch

from continua._errors import ArgumentError
from continua._values import value
from continua.solve import (
    BackwardField,
    Dynamics,
    Reading,
    ReversibleSolver,
    Solver,
    Stage,
    State,
    Stats,
    Trajectory,
    linear,
)

from ._gradient import Gradient, Job, as_leaves, split, vector_jacobian


class _Linearized:
    """The field evaluated at one stage and state, with the graph of the evaluation."""

    def __init__(self, reading: Reading, state: State):
        self._reading, self._start = reading, as_leaves(state)
        with torch.enable_grad():
            self._end = reading.evaluate[0](self._start)
        self.value = tuple(x.detach() for x in self._end)

    def vjp(self, a: State) -> State:
        """The gradient of the state from that of the value; adds those of the weights."""
        reading = self._reading
        found, weights = vector_jacobian([self._end], [a], self._start, reading.leaves)
        reading.accumulate(weights)
        return found


class _ReversibleJob(Job):
    solver: ReversibleSolver

    noise = (
        "steps with noise such as dropout cannot be reversed: use Checkpoint() or Backprop(), "
        "or evaluation mode"
    )

    def forward(self, z: State) -> Trajectory:
        self.plan = self.solver.plan(self.span, self.dynamics.jumps)
        return self.solver.integrate(
            self.dynamics, z, self.span, self.save_at,
            observe=lambda parts: self.stored.extend(itertools.chain(*parts)),
        )  # fmt: skip

    def backward(
        self, field: BackwardField, final: State, saved: list[State], stats: Stats
    ) -> State:
        solver = self.solver
        h = (self.span[1] - self.span[0]) / solver.steps
        z = split(self.stored, self.leaves)
        a = [final, *(tuple(map(torch.zeros_like, part)) for part in z[1:])]
        fractions = solver.fractions(self.span, self.save_at)
        # The field at the start of the last reversed step, if it was evaluated there.
        known: _Linearized | None = None

        def linearize(stage: Stage, state: State) -> _Linearized:
            stats.evaluations += 1
            return _Linearized(field.read([stage]), state)

        for n in reversed(range(solver.steps)):
            own, *jump = self.plan[n]
            inside = [
                (solver.interpolation_weights(h, x), saved.pop()) for x in reversed(fractions[n])
            ]
            for (_, _, last), gradient in inside:
                a[0] = linear([1, last], [a[0], gradient])
            forward = known
            if jump:  # subtract the jump from the slope
                right = known or linearize(jump[-1], z[-2])
                left = linearize(jump[0] if len(jump) > 1 else own, z[-2])
                a[-2] = linear([1, 1], [a[-2], right.vjp(a[-1])])
                if len(jump) > 1:
                    z[-1] = linear([1, 1, -1], [z[-1], left.value, right.value])
                    a[-2] = linear([1, 1], [a[-2], left.vjp(linear([-1], a[-1:]))])
                else:
                    z[-1], a[-1], forward = left.value, tuple(map(torch.zeros_like, a[-1])), left
            q = linear(solver.rows(-h)[0], z)
            if solver.place == 1:  # the reversed step evaluates the field at its other end
                forward = forward or linearize(own, z[-2])
                reverse = known = linearize(solver.start_stage(self.span, n), q)
            else:
                forward = reverse = linearize(own, q)
            z = solver.advance(z, q, reverse.value, -h)
            a = self._step_vjp(forward, a, h)
            for (state, slope, _), gradient in inside:
                a[0] = linear([1, state], [a[0], gradient])
                a[-1] = linear([1, slope], [a[-1], gradient])
            stats.steps += 1
        start = known or linearize(solver.start_stage(self.span, 0), z[0])
        # The gradients that are left belong to states that were saved at the start.
        every = [*a[:-1], start.vjp(a[-1]), *saved]
        return linear([1] * len(every), every)

    def _step_vjp(self, forward: _Linearized, a: list[State], h: float) -> list[State]:
        """The gradients of the parts at the start of a step from those at its end."""
        argument, rows = self.solver.rows(h)
        *columns, of_q, of_k = zip(*rows, strict=True)
        aq = linear([*of_q, 1], [*a, forward.vjp(linear(of_k, a))])
        return [linear([*column, c], [*a, aq]) for column, c in zip(columns, argument, strict=True)]


@value
class Reversible(Gradient):
    """Reverse the steps of a reversible solver one by one: exact, with constant memory.

    Needs `ReversibleHeun` or `AsynchronousLeapfrog`. The gradient is that of `Backprop` up to
    rounding errors of the reconstruction.
    """

    discrete = True
    job = _ReversibleJob

    def check(self, solver: Solver, dynamics: Dynamics) -> None:
        if not isinstance(solver, ReversibleSolver):
            raise ArgumentError(
                f"Reversible() needs ReversibleHeun or AsynchronousLeapfrog, not {solver!r}"
            )
