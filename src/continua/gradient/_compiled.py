"""Solves whose steps are compiled programs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import torch
from torch import Tensor
from torch._C._functorch import is_functorch_wrapped_tensor as wrapped

from continua.solve import (
    BackwardField,
    Dynamics,
    RungeKutta,
    Saves,
    Solver,
    Source,
    Span,
    Stage,
    State,
    Stats,
    Step,
    Trajectory,
    linear,
    stages_between,
)

from ._adjoint import Adjoint
from ._checkpoint import Checkpoint, CheckpointJob
from ._checks import autocast_on, tracing
from ._compiled_adjoint import CompiledAdjoint
from ._gradient import Backprop, Gradient, check_and_commit, effective_gradient
from ._programs import Programs, contiguous
from ._rows import RowsByStep, WeightGradients
from ._steps import (
    CompiledSteps,
    Kept,
    StepPrograms,
    length_tensor,
    with_programs,
)
from ._tape import Tape
from ._trace import Program, Uncompilable

T = TypeVar("T")

#: stands for `Backprop` in compiled solves, which keep what the backward pass needs of a step
BACKPROP = Checkpoint()


def compiled_first(
    programs: Programs | None,
    gradient: Gradient,
    solver: Solver | None,
    run: Callable[[Gradient, Programs | None], T],
) -> T:
    """Run a solve with compiled steps, or without, if there are none or they cannot be had."""
    gradient = effective_gradient(gradient, solver)
    if programs is not None:
        used = BACKPROP if isinstance(gradient, Backprop) else gradient
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
    gradient.check(solver, dynamics)
    _refuse(z)
    z = contiguous(z)
    if not torch.is_grad_enabled():
        with dynamics:
            with_programs(dynamics, programs, solver, z, span, save_at)
            return check_and_commit(dynamics, solver.integrate(dynamics, z, span, save_at), span)
    job: CompiledJob | CompiledAdjoint
    if isinstance(gradient, Checkpoint):
        job = CompiledJob(gradient, solver, dynamics, span, save_at, len(z))
    elif isinstance(gradient, Adjoint):
        job = CompiledAdjoint(gradient, solver, dynamics, span, save_at, len(z))
    else:
        raise Uncompilable(f"the backward pass of {type(gradient).__name__} is not a program")
    job.programs = programs
    return job.run(z)


def _refuse(z: State) -> None:
    """Refuse states that programs are not made for."""
    if torch.compiler.is_compiling() or tracing():
        raise Uncompilable("the solve itself is being traced")
    if torch.is_inference_mode_enabled():
        raise Uncompilable("inference mode is on; torch.no_grad() is enough")
    for x in z:
        if wrapped(x) or type(x) not in (Tensor, torch.nn.Parameter):
            raise Uncompilable("the state is not a plain tensor")
        if x.is_complex() or x.is_meta or x.numel() == 0:
            raise Uncompilable(f"the state is {x.dtype} of shape {list(x.shape)} on {x.device}")
    if autocast_on(z[0].device.type):
        raise Uncompilable("autocast is on")


class CompiledJob(CheckpointJob):
    """`Checkpoint` with compiled steps: their vjp runs backward over the steps that were taken."""

    many = True
    programs: Programs
    program: Program  # of the backward pass
    source: Source  # of the forward pass
    keeps: bool = False  # what the backward pass needs, not the states from which it follows
    tape: Sequence[Kept] = ()  # of adaptive steps that keep it
    weights: WeightGradients

    def forward(self, z: State) -> Trajectory:
        taken = with_programs(self.dynamics, self.programs, self.solver, z, self.span, self.save_at)
        self.source = taken.source
        plain = self.gradient.states == "all" and not self.save_at
        if plain and self.solver.steps is not None:
            trajectory = self._on_grid(taken, z, self.solver.steps)
        elif plain and self.gradient is BACKPROP and taken.try_to_keep(z, self.span):
            trajectory = self._adaptive(taken, z)
        else:
            trajectory = super().forward(z)
        self.dynamics.steps = None
        self.dense = any(x < 1 for made in self.steps for x in made.fractions)
        if self.keeps:
            return trajectory
        # What cannot be compiled shows here.
        rows = taken.source.rows(self.stages(0, 1))
        h = length_tensor(0.0, z[0])
        self.program = taken.known.vjp(self.count, z, h, rows, self.dense)
        return trajectory

    def _on_grid(self, taken: CompiledSteps, z: State, steps: int) -> Trajectory:
        """What a solver does, without what only saved states need: its time counts here."""
        h, tableau = (self.span[1] - self.span[0]) / steps, self.solver.tableau
        stages = self.solver.stages(self.span)
        found = taken.keeping(z, h, stages, steps) if self.gradient is BACKPROP else None
        if found is not None:
            self.keeps = True
            self.program, z, self.stored = found
        else:
            take = taken.on_grid(h, stages)
            for n in range(steps):
                self.stored += z
                z, _ = take(n, z)
        self.dynamics.accept()
        self.steps, self.rng = [Step(tableau, 0.0, h, (), (), [])] * steps, []
        self.kept = list(range(steps))
        stats = Stats(steps * tableau.stages, steps, step_sizes=[abs(h)] * steps)
        return Trajectory(z, [], stats)

    def _adaptive(self, taken: CompiledSteps, z: State) -> Trajectory:
        """What a solver does, keeping what the backward pass needs of each step."""
        trajectory = self.solver.integrate(self.dynamics, z, self.span, observe=taken.accept)
        self.stored = [t for kept in taken.tape for t in kept.tensors]
        self.steps, self.keeps = [], True
        self.tape = taken.tape
        for kept in taken.tape:
            kept.tensors = ()  # which are stored
        return trajectory

    @property
    def count(self) -> int:
        """How many stages of a step are differentiated."""
        tableau = self.solver.tableau
        return len(tableau.c) if self.dense else tableau.stages

    def stages(self, first: int = 0, last: int | None = None) -> Sequence[Stage]:
        """Those of some steps, all by default."""
        if self.dense or self.solver.adaptive:
            found = (stages_between(m.tableau, m.start, m.end) for m in self.steps[first:last])
            return [stage for every in found for stage in every[: self.count]]
        every = self.solver.stages(self.span)
        return every if last is None else every[first * self.count : last * self.count]

    def backward(
        self, field: BackwardField, final: State, saved: list[State], stats: Stats
    ) -> State:
        # The source of the forward pass serves again, unless it updates state, or steps are
        # recomputed: their program may not be made yet, which takes a field that can be evaluated.
        recomputes = self.gradient.states != "all"
        source = field.source() if self.source.state or recomputes else self.source
        source.gradients({})  # forgets what a backward pass that failed has added up
        if self.tape:
            self.weights = WeightGradients(source, self.leaves + 1)
            stats.steps = sum(kept.is_step for kept in self.tape)
            return Tape(self.tape, self.weights, source).backward(self.stored, contiguous(final))
        self.walk = _Backward(self, source, contiguous(final))
        self.weights = self.walk.weights
        if self.keeps:
            first = self.walk.kept(self.stored)
            stats.steps, stats.evaluations = len(self.steps), 0
        else:
            first = super().backward(field, contiguous(final), saved, stats)
        self.walk.finish()
        return first

    def gradients(self, field: BackwardField) -> Sequence[Tensor | None]:
        return self.weights.source.gradients(self.weights.shared)

    def _end(self, field: BackwardField, n: int, z: State, stats: Stats) -> State:
        stats.evaluations += self.solver.tableau.stages
        return self.walk.end(n, z)

    def _vjp(
        self, field: BackwardField, n: int, z: State, a: State, saved: list[State], stats: Stats
    ) -> State:
        stats.steps += 1
        stats.evaluations += self.walk.rows.count
        return self.walk.vjp(n, z, a, [saved.pop() for _ in self.steps[n].fractions])


class _Backward:
    """A backward pass over the steps, last one first."""

    def __init__(self, job: CompiledJob, source: Source, like: State):
        self.source, self.steps, self.dense = source, job.steps, job.dense
        self.known = StepPrograms(job.programs, job.solver, source, like)
        self.rows, self.leaves = RowsByStep(source, job.stages(), job.count), len(like)
        self.program, self.a = job.program, like
        self.length = 0.0, length_tensor(0.0, like[0])
        self.weights = WeightGradients(source, self.leaves + 1)
        self.part = -1

    def end(self, n: int, z: State) -> State:
        """Step n once more."""
        rows, count = self.rows.of(n), self.known.solver.tableau.stages
        rows = [row[:count] for row in rows]
        h = length_tensor(self.steps[n].h, z[0])
        out = self.known.step(count, z, h, rows, False).run([*z, h, *self.known.shared, *rows])
        return contiguous(out[: self.leaves])

    def vjp(self, n: int, z: State, a: State, saved: list[State]) -> State:
        """The gradient of the state at the start of step n from those at its end and inside."""
        self._part(n)
        made, rows = self.steps[n], self.rows.of(n)
        if made.h != self.length[0]:
            self.length = made.h, length_tensor(made.h, z[0])
        h = self.length[1]
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
        self.weights.add(out, self.program.wanted)
        return contiguous(linear([1] * (1 + len(inner)), [tuple(out[: self.leaves]), *inner]))

    def kept(self, tensors: Sequence[Tensor]) -> State:
        """The gradient of the state at the start, from what all steps have kept."""
        a, count, back = self.a, len(tensors) // len(self.steps), self.program.back
        assert back is not None
        for n in reversed(range(len(self.steps))):
            self._part(n)
            out = back([*tensors[n * count : (n + 1) * count], *a])
            out = [out[i] for i in self.program.wanted]
            self.weights.add(out, self.program.wanted)
            a = contiguous(out[: self.leaves])
        return a

    def _part(self, n: int) -> None:
        if n // self.rows.size != self.part:
            self.finish()
            self.part = n // self.rows.size

    def finish(self) -> None:
        """Hand the gradients of weights at stages on."""
        if self.part >= 0:
            self.weights.pull(self.rows.among(self.part), backward=True)
