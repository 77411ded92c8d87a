from __future__ import annotations

from contextlib import nullcontext

import torch
from torch import Tensor

from continua._errors import ArgumentError
from continua._values import value
from continua.solve import (
    Dynamics,
    Reading,
    Rerun,
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

from ._gradient import Gradient, Job, kept_rng, leaf, rng_state, split, vector_jacobian


class _CheckpointJob(Job):
    gradient: Checkpoint
    solver: RungeKutta

    def forward(self, z: State) -> Trajectory:
        self.steps: list[Step] = []
        self.rng: list[list[Tensor]] = []
        self.kept: list[int] = []
        next_kept = 0
        now = rng_state(z) if self.dynamics.noisy else None

        def observe(taken: Step) -> None:
            nonlocal now, next_kept
            n = len(self.steps)
            # Triangular numbers: with N steps about sqrt(2 N) states, as far apart at most.
            if self.gradient.states == "all" or n == next_kept:
                self.kept.append(n)
                next_kept += len(self.kept)
                self.stored += taken.z
            made = Step(taken.tableau, taken.start, taken.end, (), (), [], taken.fractions)
            self.steps.append(made)
            if now is not None:
                self.rng.append(now)
                now = rng_state(z)

        return self.solver.integrate(self.dynamics, z, self.span, self.save_at, observe)

    @property
    def noise(self) -> str | None:
        if not self.solver.adaptive:
            return None
        return (
            f"{self.solver!r} tries steps, so noise such as dropout cannot be drawn again as "
            "it was: use Backprop(), a fixed grid with steps=, or evaluation mode"
        )

    def backward(self, again: Rerun, final: State, saved: list[State], stats: Stats) -> State:
        a, end = final, len(self.steps)
        for first, start in zip(
            self.kept[::-1], split(self.stored, self.leaves)[::-1], strict=True
        ):
            states = [start]
            for n in range(first, end - 1):
                with torch.no_grad():
                    states.append(self._repeated(again, n, states[-1], stats)[0])
            for n in reversed(range(first, end)):
                a = self._vjp(again, n, states.pop(), a, saved, stats)
            end = first
        # What is left of the saved states was asked for at the very start.
        return linear([1] * (1 + len(saved)), [a, *saved])

    def _repeated(
        self, again: Rerun, n: int, z: State, stats: Stats, leaves: bool = False
    ) -> tuple[State, list[State], Reading]:
        """Step n once more: its end, the slopes at its stages, and the reading of the field."""
        made = self.steps[n]
        stages = stages_between(made.tableau, made.start, made.end)
        if not leaves or all(x >= 1 for x in made.fractions):
            stages = stages[: made.tableau.stages]
        stats.evaluations += len(stages)
        reading = again.read(stages, leaves)
        ks: list[State] = []
        with kept_rng(z, self.rng[n]) if self.rng else nullcontext():
            end = step(Scaled(made.tableau, made.h), reading.evaluate, z, ks)
        return end, ks, reading

    def _vjp(
        self, again: Rerun, n: int, z: State, a: State, saved: list[State], stats: Stats
    ) -> State:
        """The gradient of the state at the start of step n from that at its end."""
        made = self.steps[n]
        count = len(made.fractions)
        along, saved[len(saved) - count :] = saved[len(saved) - count :], []
        with torch.enable_grad():
            z = leaf(z)
            end, ks, reading = self._repeated(again, n, z, stats, leaves=True)
            whole = Step(made.tableau, made.start, made.end, z, end, ks)
            outputs = [end, *(end if x >= 1 else whole.at(x) for x in made.fractions)]
        gradient, weights = vector_jacobian(outputs, [a, *along], z, reading.leaves)
        reading.pull(weights)
        stats.steps += 1
        return gradient


@value
class Checkpoint(Gradient):
    """Keep the states between steps and take each step again: exact, with less memory.

    The gradient is that of `Backprop`. Steps that were taken are taken again as they were,
    never searched anew; dropout on a fixed grid sees the same noise.

    Args:
        states: `"all"` keeps the state at every step: memory grows with steps times state.
            `"sqrt"` keeps about the square root of that many, for one more forward solve.
    """

    discrete = True
    job = _CheckpointJob

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
