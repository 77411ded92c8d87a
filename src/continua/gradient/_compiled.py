"""Solves whose steps are compiled programs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import torch
from torch import Tensor
from torch._C._functorch import is_functorch_wrapped_tensor as wrapped

from continua.solve import (
    Dynamics,
    EveryStep,
    Rerun,
    RungeKutta,
    Saves,
    Solver,
    Source,
    Span,
    Stage,
    State,
    Stats,
    Trajectory,
    linear,
    stages_between,
)

from ._checkpoint import Checkpoint, CheckpointJob
from ._checks import autocast_on, tracing
from ._gradient import Backprop, Gradient, committed, kept_rng
from ._programs import Program, Programs, Uncompilable, contiguous
from ._steps import CompiledSteps, RowsByStep, StepPrograms, length_tensor

T = TypeVar("T")


def compiled_first(
    programs: Programs | None,
    gradient: Gradient,
    run: Callable[[Gradient, Programs | None], T],
) -> T:
    """Run a solve with compiled steps, or without, if there are none or they cannot be had."""
    if programs is not None:
        # The steps are kept and differentiated one by one, whichever of the two it is.
        used = Checkpoint() if isinstance(gradient, Backprop) else gradient
        try:
            return run(used, programs)
        except Uncompilable as why:
            programs.log(why)
    return run(gradient, None)


def compiled_solve(
    programs: Programs,
    gradient: Gradient,
    solver: Solver,
    dynamics: Dynamics,
    z: State,
    span: Span,
    save_at: Saves,
) -> Trajectory:
    """What `Gradient.solve` does, with compiled steps."""
    if not isinstance(solver, RungeKutta):
        raise Uncompilable(f"{type(solver).__name__} is not a Runge-Kutta method")
    _refuse(z)
    z = contiguous(z)
    if not torch.is_grad_enabled():
        with dynamics:
            with_programs(dynamics, programs, solver, z, span, save_at)
            return committed(dynamics, solver.integrate(dynamics, z, span, save_at), span)
    if not isinstance(gradient, Checkpoint):
        raise Uncompilable(f"the backward pass of {type(gradient).__name__} is not a program yet")
    job = CompiledJob(gradient, solver, dynamics, span, save_at, len(z))
    job.programs = programs
    return job.run(z)


def _refuse(z: State) -> None:
    """Refuse states that programs are not made for."""
    if torch.compiler.is_compiling() or tracing():
        raise Uncompilable("the solve itself is being traced")
    for x in z:
        if wrapped(x) or type(x) not in (Tensor, torch.nn.Parameter):
            raise Uncompilable("the state is not a plain tensor")
        if x.is_complex() or x.is_meta or x.numel() == 0:
            raise Uncompilable(f"the state is {x.dtype} of shape {list(x.shape)} on {x.device}")
    if autocast_on(z[0].device.type):
        raise Uncompilable("autocast is on")


def with_programs(
    dynamics: Dynamics, programs: Programs, solver: RungeKutta, z: State, span: Span, save_at: Saves
) -> CompiledSteps:
    """Let dynamics take compiled steps."""
    first = stages_between(solver.tableau, *span)[0]
    kind = tuple((x.shape, x.dtype) for x in z)
    if kind not in programs.checked:
        # Mistakes of a field show in a plain evaluation, with a sentence on what is wrong.
        with torch.no_grad(), kept_rng(z):
            dynamics.at([first])[0](z)
        programs.checked.add(kind)
    inner = any(0 < abs(s - span[0]) < abs(span[1] - span[0]) for s in _depths(save_at))
    taken = CompiledSteps(programs, solver, dynamics.source(), z, inner)
    dynamics.steps = taken
    return taken


def _depths(save_at: Saves) -> Sequence[float]:
    return [0.5] if isinstance(save_at, EveryStep) else save_at


class CompiledJob(CheckpointJob):
    """`Checkpoint` with compiled steps: their vjp runs backward over the steps that were taken."""

    programs: Programs

    def forward(self, z: State) -> Trajectory:
        taken = with_programs(self.dynamics, self.programs, self.solver, z, self.span, self.save_at)
        trajectory = super().forward(z)
        self.dynamics.steps = None
        self.dense = any(x < 1 for made in self.steps for x in made.fractions)
        self.programs_of(taken.source, z)  # what cannot be compiled shows here
        return trajectory

    def programs_of(self, source: Source, z: State) -> tuple[StepPrograms, Program, RowsByStep]:
        """The vjp of a step, and what it reads."""
        tableau = self.solver.tableau
        count = len(tableau.c) if self.dense else tableau.stages
        if self.dense or self.solver.adaptive:
            stages: Sequence[Stage] = [
                stage
                for made in self.steps
                for stage in stages_between(tableau, made.start, made.end)[:count]
            ]
        else:
            stages = self.solver.stages(self.span)
        known, rows = (
            StepPrograms(self.programs, self.solver, source, z),
            RowsByStep(source, stages, count),
        )
        return known, known.vjp(count, z, length_tensor(0.0, z[0]), rows.of(0), self.dense), rows

    def backward(self, again: Rerun, final: State, saved: list[State], stats: Stats) -> State:
        source = again.source()
        self.walk = _Backward(self, source, contiguous(final))
        first = super().backward(again, contiguous(final), saved, stats)
        self.walk.finish()
        return first

    def gradients(self, again: Rerun) -> Sequence[Tensor | None]:
        return self.walk.source.gradients(self.walk.shared)

    def _end(self, again: Rerun, n: int, z: State, stats: Stats) -> State:
        stats.evaluations += self.solver.tableau.stages
        return self.walk.end(n, z)

    def _vjp(
        self, again: Rerun, n: int, z: State, a: State, saved: list[State], stats: Stats
    ) -> State:
        stats.steps += 1
        stats.evaluations += self.walk.rows.count
        return self.walk.vjp(n, z, a, [saved.pop() for _ in self.steps[n].fractions])


class _Backward:
    """A backward pass over the steps, last one first."""

    def __init__(self, job: CompiledJob, source: Source, like: State):
        self.source, self.steps, self.dense = source, job.steps, job.dense
        self.known, self.program, self.rows = job.programs_of(source, like)
        self.leaves = len(like)
        first = self.leaves + 1 + len(source.shared)
        places = list(enumerate(self.program.wanted))
        self.of_shared = [(at, i - self.leaves - 1) for at, i in places if self.leaves < i < first]
        self.of_rows = [(at, i - first) for at, i in places if i >= first]
        self.shared: dict[int, Tensor] = {}
        self.part, self.pieces = -1, list[list[Tensor]]()

    def end(self, n: int, z: State) -> State:
        """Step n once more."""
        rows, count = self.rows.of(n), self.known.solver.tableau.stages
        rows = [row[:count] for row in rows]
        h = length_tensor(self.steps[n].h, z[0])
        out = self.known.step(count, z, h, rows, False).run([*z, h, *self.known.shared, *rows])
        return contiguous(out[: self.leaves])

    def vjp(self, n: int, z: State, a: State, saved: list[State]) -> State:
        """The gradient of the state at the start of step n from those at its end and inside."""
        if n // self.rows.size != self.part:
            self.finish()
            self.part = n // self.rows.size
        made, rows = self.steps[n], self.rows.of(n)
        h = length_tensor(made.h, z[0])
        inner: list[State] = []
        for x, g in zip(made.fractions, reversed(saved), strict=True):
            if x >= 1:
                a = linear([1, 1], [a, g])
            else:
                inner.append(g)
        along = [*a]
        if self.dense:
            weights = [made.tableau.weights(x) for x in made.fractions if x < 1]
            for i in range(self.rows.count):
                of_slope = [made.h * w[i] for w in weights]
                zero = tuple(map(torch.zeros_like, a))
                along += linear([1, *of_slope], [zero, *inner])
        out = self.program.run([*z, h, *self.known.shared, *rows, *along])
        self._gather(out)
        return contiguous(linear([1] * (1 + len(inner)), [tuple(out[: self.leaves]), *inner]))

    def _gather(self, out: Sequence[Tensor]) -> None:
        found = [out[at] for at, _ in self.of_shared]
        if found and self.shared:
            torch._foreach_add_(list(self.shared.values()), found)
        elif found:
            own = (g.clone() for g in found)
            self.shared = dict(zip((i for _, i in self.of_shared), own, strict=True))
        self.pieces.append([out[at] for at, _ in self.of_rows])

    def finish(self) -> None:
        """Hand the gradients of weights at stages on."""
        if self.pieces and self.of_rows:
            stages = self.rows.among(self.part)
            every = zip(*reversed(self.pieces), strict=True)
            found = {i: torch.cat(g) for (_, i), g in zip(self.of_rows, every, strict=True)}
            self.source.pull(stages, found)
        self.pieces = []
