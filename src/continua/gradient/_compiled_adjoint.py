"""The adjoint equation as programs: its steps, and the gradients of weights."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from continua.solve import (
    Evaluate,
    Rerun,
    RungeKutta,
    Source,
    Stage,
    State,
    Stats,
    Step,
    Traced,
    Trajectory,
    linear,
    stages_between,
)

from ._adjoint import AdjointJob, Backward, merge
from ._gradient import leaf, vector_jacobian
from ._programs import Programs, contiguous
from ._steps import CompiledSteps, WeightGradients, with_programs
from ._trace import Function, Uncompilable

#: how many nodes are contracted with the basis at once
TOGETHER = 128
#: how many nodes of a quadrature one program takes; their number differs from step to step
CHUNK = 4
#: a stage, the backward state there, and its weight in an integral
Node = tuple[Stage, State, float]


class CompiledAdjoint(AdjointJob):
    """`Adjoint` with compiled steps, forward and backward."""

    programs: Programs
    weights: _Weights | None = None  # None if the backward pass is not compiled

    def forward(self, z: State) -> Trajectory:
        with_programs(self.dynamics, self.programs, self.solver, z, self.span, self.save_at, True)
        trajectory = super().forward(z)
        self.dynamics.steps = None
        return trajectory

    def backward(self, again: Rerun, final: State, saved: list[State], stats: Stats) -> State:
        found = Stats()
        try:
            self.weights = _Weights(self, again.source(), final)
            first = super().backward(again, contiguous(final), saved, found)
            self.weights.finish()
        except Uncompilable as why:
            self.programs.log(why)
            self.weights, found = None, Stats()
            first = super().backward(again, final, saved, found)
        merge(stats, found)
        return first

    def gradients(self, again: Rerun) -> Sequence[Tensor | None]:
        return again.gathered if self.weights is None else self.weights.gradients()

    def equation(self, again: Rerun, solver: RungeKutta) -> Backward:
        if self.weights is None:
            return super().equation(again, solver)
        found = Backward(self, again, at_stages=False)
        self.weights.at_stages = self.at_stages(solver)
        source = AdjointSource(self, self.weights.source)
        like = (*self.stored, *self.weights.like) if self.backsolves else self.weights.like
        found.steps = CompiledSteps(self.programs, solver, source, like, dense=True)
        return found

    def integral(self, step: Step, dynamics: Backward, again: Rerun, stats: Stats) -> None:
        if self.weights is None:
            super().integral(step, dynamics, again, stats)
        elif self.weights.at_stages:
            self.weights.add(_at_stages(step))
        else:
            nodes = self.nodes(step, dynamics, stats)
            found = [(Stage(s, "right"), both, w) for s, both, w in nodes]
            for first in range(0, len(found), CHUNK):
                chunk = found[first : first + CHUNK]
                stage, both, _ = chunk[-1]
                self.weights.add([*chunk, *[(stage, both, 0.0)] * (CHUNK - len(chunk))])


def _at_stages(step: Step) -> list[Node]:
    """The weights of the method itself, where they count."""
    places, floats = stages_between(step.tableau, step.start, step.end), step.tableau.floats
    known = [step.z, *step.ks]
    return [
        (places[i], linear([1.0, *(step.h * a for a in floats.a[i])], known), -step.h * b)
        for i, b in enumerate(floats.b)
        if b
    ]


class AdjointSource(Source):
    """The adjoint equation, whose steps read the forward solution beside the field's own rows."""

    def __init__(self, job: AdjointJob, field: Source):
        self._job, self._field = job, field
        self.shared, self.code, self.numbers = field.shared, field.code, field.numbers
        self.signature = [*field.signature, "adjoint", job.gradient.state]

    def rows(self, stages: Sequence[Stage]) -> Sequence[Tensor]:
        own = list(self._field.rows(stages))
        return own if self._job.backsolves else [*own, *forward_states(self._job, stages)]

    def traced(self, stages: Sequence[Stage]) -> Traced:
        inner, n, backsolves = self._field.traced(stages), self._job.leaves, self._job.backsolves

        def on(shared: Sequence[Tensor], rows: Sequence[Tensor]) -> tuple[list[Evaluate], object]:
            own = rows if backsolves else rows[:-n]
            evaluate, _ = inner(shared, own)
            if backsolves:
                return [_adjoint(f, n, ()) for f in evaluate], tuple
            states = zip(*(row.unbind(0) for row in rows[-n:]), strict=True)
            return [_adjoint(f, n, z) for f, z in zip(evaluate, states, strict=True)], tuple

        return on  # type: ignore[return-value]

    def pull(self, stages: Sequence[Stage], gradients: object) -> None:
        raise NotImplementedError  # a step of the adjoint equation is not differentiated

    def gradients(self, shared: object) -> Sequence[Tensor | None]:
        raise NotImplementedError


def _adjoint(f: Evaluate, n: int, z: State) -> Evaluate:
    """The adjoint equation at one stage; z is there, or a part of its state."""

    def evaluate(both: State) -> State:
        with torch.enable_grad():
            start = leaf(z or both[:-n])
            out = f(start)
        found, _ = vector_jacobian([out], [both[-n:]], start, [])
        moved = () if z else (x.detach() for x in out)
        return (*moved, *(-g for g in found))

    return evaluate


def forward_states(job: AdjointJob, stages: Sequence[Stage]) -> list[Tensor]:
    """The forward solution at some stages, `[E, ...]` for each leaf."""
    states = [job.at(float(stage.depth)) for stage in stages]
    return [torch.stack(leaf) for leaf in zip(*states, strict=True)]


class _Weights:
    """The integral of a df/dtheta, whose nodes are gathered until there are some to contract."""

    def __init__(self, job: CompiledAdjoint, source: Source, like: State):
        self.source, self.like, self.at_stages = source, like, False
        self._job, self._shared = job, contiguous([t.detach() for t in source.shared])
        self._found: WeightGradients | None = None
        self._stages: list[Stage] = []  # of the nodes that were gathered

    def add(self, nodes: Sequence[Node]) -> None:
        """Add the nodes of one step."""
        job, n = self._job, self._job.leaves
        stages = [stage for stage, _, _ in nodes]
        if job.backsolves:
            z = [torch.stack(leaf) for leaf in zip(*(b[:-n] for _, b, _ in nodes), strict=True)]
        else:
            z = forward_states(job, stages)
        scaled = [tuple(x * w for x in both[-n:]) for _, both, w in nodes]
        along = [torch.stack(leaf) for leaf in zip(*scaled, strict=True)]
        rows, weights = self.source.rows(stages), self.source.weights
        shared = zip(self._shared, self.source.shared, strict=True)
        inputs = [
            *z,
            *(t.detach().requires_grad_(own.requires_grad) for t, own in shared),
            *(x.detach().requires_grad_() for x in rows[:weights]), *rows[weights:],
        ]  # fmt: skip
        if not any(t.requires_grad for t in inputs):
            return
        key = ("slopes", len(stages))
        program = job.programs.get(key, self.source, inputs, lambda: self._slopes(len(stages)), n)
        if self._found is None:
            self._found = WeightGradients(self.source, n)
        self._found.add(program.run([*z, *self._shared, *rows, *along]), program.wanted)
        self._stages += stages
        if len(self._stages) >= TOGETHER:
            self.finish()

    def finish(self) -> None:
        """Contract what was gathered with the basis."""
        if self._found is not None:
            self._found.pull(self._stages)
        self._stages = []

    def gradients(self) -> Sequence[Tensor | None]:
        """Those of `Dynamics.tensors`."""
        return self.source.gradients({} if self._found is None else self._found.shared)

    def _slopes(self, count: int) -> Function:
        """The field at nodes, stacked."""
        traced = self.source.traced([Stage(0.0, "right")] * count)
        n, m = self._job.leaves, len(self._shared)

        def slopes(*given: Tensor) -> Sequence[Tensor]:
            evaluate, _ = traced(given[n : n + m], given[n + m :])
            states = zip(*(z.unbind(0) for z in given[:n]), strict=True)
            found = [f(z) for f, z in zip(evaluate, states, strict=True)]
            return tuple(torch.stack(leaf) for leaf in zip(*found, strict=True))

        return slopes
