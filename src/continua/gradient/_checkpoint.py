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

from ._gradient import (
    Gradient,
    Job,
    added,
    leaf,
    noise,
    or_zero,
    set_noise,
    vector_jacobian,
)


class Checkpoint(Gradient):
    """Keep the states between steps and take each step again: exact, with less memory.

    The gradient is that of `Backprop`. Steps that were taken are taken again as they were,
    never searched anew; dropout on a fixed grid sees the same noise.

    Args:
        states: `"all"` keeps the state at every step: memory grows with steps times state.
            `"sqrt"` keeps about the square root of that many, for one more forward solve.
    """

    discrete = True

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
        self.noise: list[list[Tensor]] = []
        kept: list[int] = []
        now = noise(z) if self.dynamics.noisy else None

        def observe(step: Step) -> None:
            nonlocal now
            n = len(self.steps)
            # Triangular numbers: with N steps about sqrt(2 N) states, as far apart at most.
            keep = self.states == "all" or n == kept_next[0]
            if keep:
                kept.append(n)
                kept_next[0] += len(kept)
                self.stored += step.z
            self.steps.append(Step(step.tableau, step.start, step.end, (), (), [], step.fractions))
            if now is not None:
                self.noise.append(now)
                now = noise(z)

        kept_next = [0]
        self.kept = kept
        return self.solver.integrate(self.dynamics, z, self.span, self.save_at, observe)

    def check_noise(self) -> None:
        assert isinstance(self.solver, RungeKutta)
        if self.solver.steps is None:
            raise ArgumentError(
                f"{self.solver!r} tries steps, so noise such as dropout cannot be drawn again as "
                "it was: use Backprop(), a fixed grid with steps=, or evaluation mode"
            )

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
        with _Noise(self.noise[n] if self.noise else None, z):
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

    def __init__(self, states: list[Tensor] | None, z: State):
        self._states, self._z = states, z

    def __enter__(self) -> None:
        if self._states is not None:
            self._now = noise(self._z)
            set_noise(self._states, self._z)

    def __exit__(self, *error: object) -> None:
        if self._states is not None:
            set_noise(self._now, self._z)
