from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from continua._errors import ArgumentError
from continua.solve import (
    Dynamics,
    RungeKutta,
    Solver,
    Span,
    State,
    Stats,
    Step,
    Trajectory,
    combine,
    further_stages,
    stages_between,
)

from ._gradient import Gradient, Job, added, leaf, or_zero, vector_jacobian


class Checkpoint(Gradient):
    """Keep the states between steps and take each step again: exact, with less memory.

    The gradient is that of `Backprop`. Steps that were taken are taken again as they were,
    never searched anew; dropout sees the same noise.

    Args:
        states: `"all"` keeps the state at every step: memory grows with steps times state.
            `"sqrt"` keeps about the square root of that many, for one more forward solve.
    """

    def __init__(self, states: str = "all"):
        if states not in ("all", "sqrt"):
            raise ArgumentError(f"states is 'all' or 'sqrt', not {states!r}")
        self.states = states

    def check(self, solver: Solver, dynamics: Dynamics) -> None:
        if not isinstance(solver, RungeKutta):
            raise ArgumentError(
                f"Checkpoint takes the steps of a Runge-Kutta method again; "
                f"for {solver!r} use Reversible() or Backprop()"
            )

    def solve(
        self, solver: Solver, dynamics: Dynamics, z: State, span: Span, save_at: Sequence[float]
    ) -> Trajectory:
        return _CheckpointJob(solver, dynamics, span, save_at, len(z), self.states).run(z)


class _CheckpointJob(Job):
    def __init__(self, *arguments: Any):
        *rest, self.states = arguments
        super().__init__(*rest)

    def forward(self, z: State) -> Trajectory:
        self.steps: list[Step] = []
        self.noise: list[Tensor] = []
        kept: list[int] = []
        noise = torch.get_rng_state() if self.dynamics.noisy else None

        def observe(step: Step) -> None:
            nonlocal noise
            n = len(self.steps)
            # Triangular numbers: with N steps about sqrt(2 N) states, as far apart at most.
            keep = self.states == "all" or n == kept_next[0]
            if keep:
                kept.append(n)
                kept_next[0] += len(kept)
                self.stored += step.z
            self.steps.append(Step(step.tableau, step.start, step.end, (), (), [], step.fractions))
            if noise is not None:
                self.noise.append(noise)
                noise = torch.get_rng_state()

        kept_next = [0]
        self.kept = kept
        return self.solver.integrate(self.dynamics, z, self.span, self.save_at, observe)

    def backward(self, final: State, saved: list[State], stats: Stats) -> State:
        a = final
        ends = [*self.kept[1:], len(self.steps)]
        for i in reversed(range(len(self.kept))):
            start = tuple(self.stored[i * self.leaves : (i + 1) * self.leaves])
            states = [start]
            for n in range(self.kept[i], ends[i] - 1):
                with torch.no_grad():
                    states.append(self._again(n, states[-1], stats)[0])
            for n in reversed(range(self.kept[i], ends[i])):
                a = self._undo(n, states.pop(), a, saved, stats)
        for state in saved:  # what is left was asked for at the very start
            a = added(a, state)
        return a

    def _again(
        self, n: int, z: State, stats: Stats, leaves: bool = False
    ) -> tuple[State, list[State], Any]:
        """Step n once more: its end, its stages, and the reading of the field."""
        step = self.steps[n]
        inner = any(x < 1 for x in step.fractions)
        stages = stages_between(step.tableau, step.start, step.end)
        stages = stages if inner and leaves else stages[: step.tableau.stages]
        stats.evaluations += len(stages)
        reading = self.dynamics.read(stages, leaves)
        with _Noise(self.noise[n] if self.noise else None):
            ks = further_stages(step.tableau, reading.evaluate, z, step.h, [])
        end = combine(z, ks, [step.h * float(b) for b in step.tableau.b])
        return end, ks, reading

    def _undo(self, n: int, z: State, a: State, saved: list[State], stats: Stats) -> State:
        step = self.steps[n]
        count = len(step.fractions)
        along, saved[len(saved) - count :] = saved[len(saved) - count :], []
        with torch.enable_grad():
            z = leaf(z)
            end, ks, reading = self._again(n, z, stats, leaves=True)
            again = Step(step.tableau, step.start, step.end, z, end, ks)
            outputs = [end, *(end if x >= 1 else again.at(x) for x in step.fractions)]
        gradients = vector_jacobian(outputs, [*z, *reading.leaves], [a, *along])
        reading.pull(gradients[len(z) :])
        stats.steps += 1
        return or_zero(gradients[: len(z)], z)


class _Noise:
    """The generator as it was at the start of a step, and afterwards as it is now."""

    def __init__(self, state: Tensor | None):
        self._state = state

    def __enter__(self) -> None:
        if self._state is not None:
            self._now = torch.get_rng_state()
            torch.set_rng_state(self._state)

    def __exit__(self, *error: object) -> None:
        if self._state is not None:
            torch.set_rng_state(self._now)
