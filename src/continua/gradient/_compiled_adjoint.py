"""The adjoint equation as programs: its steps, and the gradients of weights."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from continua.solve import (
    BackwardField,
    Evaluate,
    RungeKutta,
    Source,
    Stage,
    State,
    Stats,
    Step,
    Tableau,
    Traced,
    Trajectory,
    stages_between,
)

from ._adjoint import AdjointJob, Backward, merge
from ._gradient import as_leaves, vector_jacobian
from ._programs import Programs, contiguous
from ._rows import WeightGradients
from ._steps import CompiledSteps, with_programs
from ._trace import Function, Program, Uncompilable

#: how many nodes are contracted with the basis at once
TOGETHER = 128
#: how many nodes of a quadrature one program takes; their number differs from step to step
CHUNK = 4
#: the nodes of an integral over a step: stages, the parts of the step's slopes that make the states
#: there from that at its start, and weights
Nodes = tuple[list[Stage], list[list[float]], list[float]]


class CompiledAdjoint(AdjointJob):
    """`Adjoint` with compiled steps, forward and backward."""

    many = True
    programs: Programs
    weights: _Weights | None = None  # None if the backward pass is not compiled
    at_once: bool = False  # whether its steps give the gradients of the weights

    def forward(self, z: State) -> Trajectory:
        with_programs(self.dynamics, self.programs, self.solver, z, self.span, self.save_at, True)
        trajectory = super().forward(z)
        self.dynamics.steps = None
        return trajectory

    def _keep(self, step: Step) -> None:
        """The same polynomial, its coefficients in one tensor `[P, ...]` for each leaf."""
        step.complete(self.dynamics, self.further)
        self.ends.append((float(step.start), float(step.end)))
        self.stored += step.z
        for k in zip(*step.ks, strict=True):
            slopes = torch.stack(k)
            weights = step.h * _powers(step.tableau).to(slopes)
            self.stored.append((weights @ slopes.view(len(k), -1)).view(-1, *slopes.shape[1:]))

    def at(self, s: float) -> State:
        return tuple(x[0] for x in self.states([s]))

    def states(self, depths: Sequence[float]) -> list[Tensor]:
        """The forward solution at some depths, `[E, ...]` for each leaf."""
        places, width = [self.place(s) for s in depths], 2 * self.leaves
        powers = [[x**p for p in range(1, self.powers + 1)] for _, x in places]  # [E, P]
        found: list[list[Tensor]] = [[] for _ in range(self.leaves)]
        first = 0
        for n, among in itertools.groupby(n for n, _ in places):
            last = first + len(list(among))
            for i, out in enumerate(found, start=n * width):
                start, coefficients = self.stored[i], self.stored[i + self.leaves]
                along = torch.tensor(powers[first:last], dtype=start.dtype, device="cpu")
                flat = coefficients.view(self.powers, -1)
                out.append(torch.addmm(start.reshape(1, -1), along.to(start.device), flat))
            first = last
        shapes = [x.shape for x in self.stored[: self.leaves]]
        pairs = zip(found, shapes, strict=True)
        return [torch.cat(out).view(len(places), *shape) for out, shape in pairs]

    def backward(
        self, field: BackwardField, final: State, saved: list[State], stats: Stats
    ) -> State:
        found = Stats()
        try:
            self.weights = _Weights(self, field.source(), final)
            first = super().backward(field, contiguous(final), saved, found)
            self.weights.finish()
        except Uncompilable as why:
            self.programs.log(why)
            self.weights, found = None, Stats()
            first = super().backward(field, final, saved, found)
        merge(stats, found)
        return first

    def gradients(self, field: BackwardField) -> Sequence[Tensor | None]:
        return field.gradients if self.weights is None else self.weights.gradients()

    def equation(self, field: BackwardField, solver: RungeKutta) -> Backward:
        if self.weights is None:
            return super().equation(field, solver)
        found = Backward(self, field, at_stages=False)
        self.weights.at_stages = self.at_stages(solver)
        # On a grid every step counts: it gives the gradients of the weights too.
        self.at_once = self.weights.at_stages and solver.steps is not None
        tableau = solver.tableau if self.at_once else None
        source = AdjointSource(self, self.weights.source, tableau)
        like = (*self.stored, *self.weights.like) if self.backsolves else self.weights.like
        found.steps = CompiledSteps(self.programs, solver, source, like, dense=not self.at_once)
        return found

    def integral(self, step: Step, dynamics: Backward, field: BackwardField, stats: Stats) -> None:
        if self.weights is None:
            super().integral(step, dynamics, field, stats)
        elif self.at_once:
            assert isinstance(dynamics.steps, CompiledSteps)
            self.weights.take(dynamics.steps, step.tableau)
        elif self.weights.at_stages:
            self.weights.add(step, *_at_stages(step))
        else:
            step.complete(dynamics, stats)
            x, w = self._gauss(step)
            stats.evaluations += len(x)
            stages = [Stage(float(step.start) + step.h * v, "right") for v in x]
            parts = [[step.h * c for c in step.tableau.weights(v)] for v in x]
            self.weights.add(step, stages, parts, [-step.h * b for b in w])


def _at_stages(step: Step) -> Nodes:
    """The weights of the method itself, where they count."""
    places, floats = stages_between(step.tableau, step.start, step.end), step.tableau.floats
    used = [i for i, b in enumerate(floats.b) if b]
    parts = [[step.h * a for a in floats.a[i]] for i in used]
    return [places[i] for i in used], parts, [-step.h * floats.b[i] for i in used]


class AdjointSource(Source):
    """The adjoint equation, whose steps read the forward solution beside the field's own rows."""

    def __init__(self, job: CompiledAdjoint, field: Source, tableau: Tableau | None):
        self._job, self._field, self._tableau = job, field, tableau
        self.shared, self.code = field.shared, field.code
        states = 0 if job.backsolves else sum(x.numel() for x in job.stored[: job.leaves])
        self.numbers = field.numbers + states
        trained = [t.requires_grad for t in field.shared]
        about = ["adjoint", job.gradient.state, tableau is None, *trained]
        self.signature = [*field.signature, *about]

    def rows(self, stages: Sequence[Stage]) -> Sequence[Tensor]:
        own = list(self._field.rows(stages))
        return own if self._job.backsolves else [*own, *_forward(self._job, stages)]

    def traced(self, stages: Sequence[Stage]) -> Traced:
        one, n, backsolves = self._field.traced(stages[:1]), self._job.leaves, self._job.backsolves

        def on(shared: Sequence[Tensor], rows: Sequence[Tensor]) -> tuple[list[Evaluate], Any]:
            own, count = rows if backsolves else rows[:-n], self._field.weights
            given = list(shared)
            if self._tableau is not None:
                pairs = zip(shared, self.shared, strict=True)
                given = [t.detach().requires_grad_(real.requires_grad) for t, real in pairs]
            trained = [(i, t) for i, t in enumerate(given) if t.requires_grad]
            evaluate: list[Evaluate] = []
            found: list[list[Tensor | None]] = []  # by stage
            for i in range(len(stages)):
                at = [row[i : i + 1] for row in own]
                leaves: list[Tensor] = []
                if self._tableau is not None:
                    leaves = [x.detach().requires_grad_() for x in at[:count]]
                with torch.enable_grad():
                    (f,), _ = one(given, [*leaves, *at[len(leaves) :]])
                z = () if backsolves else tuple(row[i] for row in rows[-n:])
                evaluate.append(_adjoint(f, n, z, [*(t for _, t in trained), *leaves], found))
            if self._tableau is None:
                return evaluate, lambda h: []
            places = [*(i for i, _ in trained), *range(len(given), len(given) + count)]
            return evaluate, lambda h: self._integral(h, found, places)

        return on

    def _integral(
        self, h: Tensor, found: list[list[Tensor | None]], places: list[int]
    ) -> list[Tensor | None]:
        """What a step adds to the gradients of shared tensors, then of rows, `[E, ...]`."""
        assert self._tableau is not None
        out: list[Tensor | None] = [None] * (len(self.shared) + self._field.weights)
        for k, place in enumerate(places):
            column = [(every[k], b) for every, b in zip(found, self._tableau.floats.b) if b]  # noqa: B905
            like = next((g for g, _ in column if g is not None), None)
            if like is not None:
                parts = [torch.zeros_like(like) if g is None else g * (-h * b) for g, b in column]
                one = place < len(self.shared)
                out[place] = sum(parts[1:], parts[0]) if one else torch.cat(parts)
        return out

    def pull(self, stages: Sequence[Stage], gradients: object) -> None:
        raise NotImplementedError  # a step of the adjoint equation is not differentiated

    def gradients(self, shared: object) -> Sequence[Tensor | None]:
        raise NotImplementedError


def _adjoint(
    f: Evaluate, n: int, z: State, leaves: Sequence[Tensor], weights: list[list[Tensor | None]]
) -> Evaluate:
    """The adjoint equation at one stage; z is there, or a part of its state.

    What it adds to the gradients of leaves goes into `weights`.
    """

    def evaluate(both: State) -> State:
        with torch.enable_grad():
            start = as_leaves(z or both[:-n])
            out = f(start)
        found, more = vector_jacobian([out], [both[-n:]], start, leaves)
        weights.append(more)
        moved = () if z else (x.detach() for x in out)
        return (*moved, *(-g for g in found))

    return evaluate


def _forward(job: CompiledAdjoint, stages: Sequence[Stage]) -> list[Tensor]:
    return job.states([float(stage.depth) for stage in stages])


@functools.cache
def _powers(tableau: Tableau) -> Tensor:
    """What slopes count in the coefficients of a step's polynomial, `[P, S]`."""
    columns = list(itertools.zip_longest(*tableau.floats.dense, fillvalue=0.0))
    return torch.tensor(columns, dtype=torch.float64, device="cpu")


def _combined(table: list[list[float]], step: Step, leaves: slice) -> list[Tensor]:
    """States at nodes, `[E, ...]` for some leaves, from that at the start of a step and slopes."""
    found = []
    for known in zip(*(state[leaves] for state in (step.z, *step.ks)), strict=True):
        stacked = torch.stack(known[: len(table[0])])
        weights = torch.tensor(table, dtype=stacked.dtype, device="cpu").to(stacked.device)
        out = weights @ stacked.view(len(stacked), -1)
        found.append(out.view(len(table), *stacked.shape[1:]))
    return found


class _Weights:
    """The integral of a df/dtheta, whose nodes are gathered until there are some to contract."""

    def __init__(self, job: CompiledAdjoint, source: Source, like: State):
        self.source, self.like, self.at_stages = source, like, False
        job.programs.recognise(source)
        source.programs = job.programs
        self._job, self._shared = job, contiguous([t.detach() for t in source.shared])
        self._found: WeightGradients | None = None
        self._program: Program | None = None  # the same for all steps
        self._stages: list[Stage] = []  # of the nodes that were gathered

    def add(
        self, step: Step, stages: list[Stage], parts: list[list[float]], w: list[float]
    ) -> None:
        """Add the nodes of one step."""
        job, n = self._job, self._job.leaves
        if not self.at_stages:  # their number differs from step to step
            more = -len(stages) % CHUNK
            stages, parts, w = [*stages, *stages[-1:] * more], [*parts, *parts[-1:] * more], [*w]
            w += [0.0] * more
        width = max(map(len, parts))
        table = [[1.0, *part, *[0.0] * (width - len(part))] for part in parts]
        z = _combined(table, step, slice(-n)) if job.backsolves else _forward(job, stages)
        scaled = [[b * c for c in row] for row, b in zip(table, w, strict=True)]
        along = _combined(scaled, step, slice(-n, None))
        rows, weights = self.source.rows(stages), self.source.weights
        wants = [*[False] * n, *(t.requires_grad for t in self.source.shared)]
        wants += [i < weights for i in range(len(rows))]
        if not any(wants):
            return
        count = len(stages) if self.at_stages else CHUNK
        if self._found is None:
            self._found = WeightGradients(self.source, n)
        for first in range(0, len(stages), count):
            at = slice(first, first + count)
            inputs = [*(x[at] for x in z), *self._shared, *(row[at] for row in rows)]
            if self._program is None:
                key, make = ("slopes", count), functools.partial(self._slopes, count)
                self._program = job.programs.get(key, self.source, inputs, make, wants, n)
            out = self._program.run([*inputs, *(x[at] for x in along)])
            self._found.add(out, self._program.wanted)
        self._stages += stages
        if len(self._stages) >= TOGETHER:
            self.finish()

    def take(self, steps: CompiledSteps, tableau: Tableau) -> None:
        """Add what a step has integrated itself."""
        if self._found is None:
            self._found = WeightGradients(self.source, steps.known.leaves)
        self._found.add(steps.out, steps.wanted)
        # A pair has weights of zero for stages that a fixed grid does not take.
        self._stages += [s for s, b in zip(steps.stages, tableau.floats.b, strict=False) if b]
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
            out = [torch.stack(leaf) for leaf in zip(*found, strict=True)]
            # In the graph also where nothing trains: a program takes a cotangent for each output.
            zero = 0 * next(t for t in given if t.requires_grad).sum()
            return tuple(x if x.requires_grad else x + zero.to(x.dtype) for x in out)

        return slopes
