from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace

import torch
from torch import Tensor

from continua._errors import ArgumentError
from continua._values import value
from continua.solve import (
    BackwardField,
    Dynamics,
    Reading,
    RungeKutta,
    Scaled,
    Solver,
    State,
    Stats,
    Step,
    Trajectory,
    linear,
    stages_between,
    step,
)

from ._gradient import Gradient, Job, as_leaves, fork_rng, rng_states, split, vector_jacobian


class CheckpointJob(Job):
    gradient: Checkpoint
    solver: RungeKutta

    def forward(self, z: State) -> Trajectory:
        self.steps: list[Step] = []
        self.rng: list[list[Tensor]] = []
        self.kept: list[int] = []
        next_kept = 0
        # Adaptive steps refuse noise: only a fixed grid needs the states of the generators.
        now = rng_states(z) if self.dynamics.random and self.noise is None else None

        def observe(taken: Step) -> None:
            nonlocal now, next_kept
            n = len(self.steps)
            # Triangular numbers: of N steps about sqrt(2 N) are kept, as far apart at most.
            if self.gradient.states == "all" or n == next_kept:
                self.kept.append(n)
                next_kept += len(self.kept)
                self.stored += taken.z
            self.steps.append(replace(taken, z=(), end_state=(), ks=[]))
            if now is not None:
                self.rng.append(now)
                now = rng_states(z)

        return self.solver.integrate(self.dynamics, z, self.span, self.save_at, observe)

    @property
    def noise(self) -> str | None:
        if not self.solver.adaptive:
            return None
        return (
            f"{self.solver!r} tries steps, so noise such as dropout cannot be drawn again as "
            "it was: use Backprop(), a fixed grid with steps=, or evaluation mode"
        )

    def backward(
        self, field: BackwardField, final: State, saved: list[State], stats: Stats
    ) -> State:
        a, end = final, len(self.steps)
        starts = split(self.stored, self.leaves)
        for first in reversed(self.kept):
            states = [starts.pop()]
            for n in range(first, end - 1):
                states.append(self._end(field, n, states[-1], stats))
            for n in reversed(range(first, end)):
                a = self._vjp(field, n, states.pop(), a, saved, stats)
            end = first
        # The gradients that are left belong to states that were saved at the start.
        return linear([1] * (1 + len(saved)), [a, *saved])

    def _end(self, field: BackwardField, n: int, z: State, stats: Stats) -> State:
        with torch.no_grad():
            return self._recompute(field, n, z, stats)[0].end_state

    def _recompute(
        self, field: BackwardField, n: int, z: State, stats: Stats, leaves: bool = False
    ) -> tuple[Step, Reading]:
        """Take step n again; the step, and the field that it has read."""
        made = self.steps[n]
        stages = stages_between(made.tableau, made.start, made.end)
        if not leaves or all(x >= 1 for x in made.fractions):
            stages = stages[: made.tableau.stages]
        stats.evaluations += len(stages)
        reading = field.read(stages, leaves)
        ks: list[State] = []
        with fork_rng(z, self.rng[n]) if self.rng else nullcontext():
            end = step(Scaled(made.tableau, made.h), reading.evaluate, z, ks)
        return replace(made, z=z, end_state=end, ks=ks), reading

    def _vjp(
        self, field: BackwardField, n: int, z: State, a: State, saved: list[State], stats: Stats
    ) -> State:
        """The gradient of the state at the start of step n from that at its end."""
        with torch.enable_grad():
            taken, reading = self._recompute(field, n, as_leaves(z), stats, leaves=True)
            outputs = [taken.end_state, *reversed(taken.saved(self.dynamics, stats))]
        along = [a, *(saved.pop() for _ in taken.fractions)]
        gradient, weights = vector_jacobian(outputs, along, taken.z, reading.leaves)
        reading.accumulate(weights)
        stats.steps += 1
        return gradient


@value
class Checkpoint(Gradient):
    """Keep the states between steps and recompute each step: exact, with less memory.

    The gradient is that of `Backprop`. Accepted steps are recomputed with the same step sizes, and
    dropout on a fixed grid with the same noise.

    Args:
        states: `"all"` keeps the state at every step: memory grows with steps times state.
            `"sqrt"` keeps about the square root of that many, for one more forward solve.
    """

    discrete = True
    job = CheckpointJob

    states: str = "all"

    def __post_init__(self) -> None:
        if self.states not in ("all", "sqrt"):
            raise ArgumentError(f"states is 'all' or 'sqrt', not {self.states!r}")

    def check(self, solver: Solver, dynamics: Dynamics) -> None:
        if not isinstance(solver, RungeKutta):
            raise ArgumentError(
                f"Checkpoint takes the steps of a Runge-Kutta method again; "
                f"for {solver!r} use Reversible() or Backprop()"
            )
