"""The steps of a solve as programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from continua._errors import ArgumentError
from continua.solve import (
    Dynamics,
    Evaluate,
    EveryStep,
    Pair,
    RungeKutta,
    Saves,
    Scaled,
    Source,
    Span,
    Stage,
    State,
    Step,
    Steps,
    Take,
    error_norm,
    linear,
    size_norm,
    stages_between,
    step,
)

from ._gradient import fork_rng, split
from ._programs import Programs, contiguous
from ._rows import RowsByStep
from ._trace import Function, Program, Uncompilable


class StepPrograms:
    """The programs of one solve: a step, a step with its error, and the vjp of a step."""

    def __init__(self, programs: Programs, solver: RungeKutta, source: Source, z: State):
        self.programs, self.solver, self.source, self.leaves = programs, solver, source, len(z)
        self.shared = contiguous([t.detach() for t in source.shared])
        programs.recognise(source)
        source.programs = programs

    def step(self, count: int, z: State, h: Tensor, rows: Sequence[Tensor], dense: bool) -> Program:
        """The end of a step, the slopes at its stages if they are wanted, the state it leaves."""
        return self._program("step", z, h, rows, count, dense)

    def kept(self, z: State, h: Tensor, rows: Sequence[Tensor]) -> Program:
        """A step and its vjp, which takes what the step keeps for it."""
        count = self.solver.tableau.stages
        return self._program("step", z, h, rows, count, outputs=self.leaves, keep=True)

    def vjp(self, count: int, z: State, h: Tensor, rows: Sequence[Tensor], dense: bool) -> Program:
        """The gradients of state, shared tensors and rows from those of end and slopes."""
        outputs = self.leaves * (1 + (count if dense else 0))
        return self._program("vjp", z, h, rows, count, dense, outputs=outputs)

    def first(self, z: State, h: Tensor, rows: Sequence[Tensor], keep: bool) -> Program:
        """The slope where steps start, the sizes of state and slope, and the state it leaves."""
        outputs = self.leaves + 1 if keep else None
        return self._program("first", z, h, rows, 1, outputs=outputs, keep=keep)

    def change(self, z: State, k: State, h: Tensor, rows: Sequence[Tensor]) -> Program:
        """How much a short Euler step changes the slope."""
        return self._program("change", z, h, rows, 1, k=k)

    def attempt(self, z: State, k: State, h: Tensor, rows: Sequence[Tensor], keep: bool) -> Program:
        """A step of a pair from its first slope: its end, its slopes, its error, its state.

        If it keeps what its vjp needs, the last slope is the only one that it gives, where the
        next step starts with it.
        """
        fsal = self.solver.tableau.fsal
        count = self.solver.tableau.stages + fsal - 1
        outputs = self.leaves * (1 + fsal) + 1 if keep else None
        return self._program("attempt", z, h, rows, count, not keep, k, outputs, keep)

    def _program(
        self,
        kind: str,
        z: State,
        h: Tensor,
        rows: Sequence[Tensor],
        count: int,
        dense: bool = False,
        k: State = (),
        outputs: int | None = None,
        keep: bool = False,
    ) -> Program:
        def make() -> Function:
            taken = self._taken(count, kind)
            return lambda *given: taken(given, dense, kind != "vjp")

        # Sizes and errors depend on the tolerances; a step only on the method.
        method = type(self.solver) if kind in ("step", "vjp") else self.solver
        key = (kind, method, count, dense, keep)
        inputs = [*z, h, *self.shared, *rows, *k]
        if outputs is None:
            return self.programs.get(key, self.source, inputs, make)
        weights, more = self.source.weights, kind != "vjp"
        wants = [True] * len(z) + [False] + [t.requires_grad for t in self.source.shared]
        wants += [i < weights for i in range(len(rows))] + [True] * len(k)
        outputs += self.source.state if more else 0
        return self.programs.get(key, self.source, inputs, make, wants, outputs, keep)

    def _taken(self, count: int, kind: str) -> Function:
        """The function that is traced; `step` is the only place of its arithmetic."""
        tableau = self.solver.tableau
        dummies = [Stage(0.0, "right")] * count
        traced = self.source.traced(dummies)
        n, m, solver, attempt = self.leaves, len(self.shared), self.solver, kind == "attempt"
        after = n if kind in ("attempt", "change") else 0  # the first slope comes last

        def taken(given: Sequence[Tensor], dense: bool, state: bool) -> Sequence[Tensor | None]:
            z, h, shared, rest = given[:n], given[n], given[n + 1 : n + 1 + m], given[n + 1 + m :]
            rows, k = rest[: len(rest) - after], rest[len(rest) - after :]
            evaluate, left = traced(shared, rows)
            if kind == "first":
                assert isinstance(solver, Pair)
                slope = evaluate[0](tuple(z))
                cut = _cut(tuple(z), slope)
                sizes = [size_norm(solver, x, cut[0]) for x in cut]
                return (*_returned(slope, z), torch.stack(sizes), *left(h))
            if kind == "change":
                assert isinstance(solver, Pair)
                slope = evaluate[0](tuple(x + h * v for x, v in zip(z, k, strict=True)))
                return (size_norm(solver, linear([1, -1], [slope, tuple(k)]), tuple(z)),)
            slopes: list[State] = []
            # Slopes times h, so that one program serves steps of every length.
            ks = [tuple(h * x for x in k)] if attempt else []
            end = step(Scaled(tableau, 1.0), [_times(h, f, slopes) for f in evaluate], tuple(z), ks)
            out: list[Tensor | None] = [*end]
            if dense:
                out += [x.clone() for slope in slopes for x in slope]
            elif attempt and tableau.fsal:
                out += _returned(slopes[-1], z)
            if attempt:
                assert isinstance(solver, Pair)
                cut = _cut(tuple(z), end, *ks)
                out.append(error_norm(solver, cut[2:], cut[0], cut[1]))
            return tuple([*out, *left(h)] if state else out)

        return taken


def _cut(*states: State) -> list[State]:
    return [tuple(x.detach() for x in state) for state in states]


def _returned(slope: State, z: Sequence[Tensor]) -> State:
    """The slope as an output: in the graph of the state, and no part of the state itself."""
    pairs = zip(slope, z, strict=True)
    return tuple(
        k + 0 * x if x.requires_grad and not k.requires_grad else k.clone() for k, x in pairs
    )


def _times(h: Tensor, f: Evaluate, slopes: list[State]) -> Evaluate:
    def evaluate(z: State) -> State:
        slope = f(z)
        slopes.append(slope)
        return tuple(h * k for k in slope)

    return evaluate


@dataclass
class Kept:
    """What the vjp of a first slope or of a step needs."""

    program: Program
    stages: Sequence[Stage]
    tensors: Sequence[Tensor]
    size: int  # how many tensors
    is_step: bool
    fsal: bool = False  # whether the step gives the first slope of the next one


class CompiledSteps(Steps):
    """The steps of one forward solve."""

    def __init__(
        self, programs: Programs, solver: RungeKutta, source: Source, z: State, dense: bool
    ):
        self.known = StepPrograms(programs, solver, source, z)
        self.source, self.dense, self.like = source, dense, z[0]
        self.stages: Sequence[Stage] = ()  #: of the last step on a grid
        self.out: Sequence[Tensor] = ()  #: what it gave
        self.wanted: Sequence[int] = ()  #: and which of the outputs that is
        self._first: Program | None = None
        self._attempt: Program | None = None
        self.keep = False  #: whether adaptive steps give what their vjp needs
        self.tried: Kept | None = None  #: that of the last one
        self.tape: list[Kept] = []  #: that of first slopes and of steps that were accepted

    def keeping(
        self, z: State, h: float, stages: Sequence[Stage], steps: int
    ) -> tuple[Program, State, list[Tensor]] | None:
        """A fixed grid: its program, its end, and what its steps keep; None if sizes change."""
        known, n, length = self.known, self.known.leaves, length_tensor(h, self.like)
        rows, kept = RowsByStep(self.source, stages, len(stages) // steps), list[Tensor]()
        try:
            program = known.kept(z, length, rows.of(0))
        except Uncompilable:
            return None  # or for a reason that shows at the next try
        first = n + self.source.state
        for i in range(steps):
            own = rows.of(i)
            out = program.run([*z, length, *known.shared, *own])
            z = contiguous(out[:n])
            self._leave(own, out[n:first])
            kept += out[first:]
        return program, z, kept

    def on_grid(self, h: float, stages: Sequence[Stage]) -> Take:
        known, n = self.known, self.known.leaves
        count = known.solver.tableau.stages
        length = length_tensor(h, self.like)
        rows = RowsByStep(self.source, stages, count)
        rows.of(0)  # before the solver accepts them
        program: Program | None = None

        def take(i: int, z: State) -> tuple[State, list[State]]:
            nonlocal program
            own = rows.of(i)
            if program is None:
                program = known.step(count, z, length, own, self.dense)
                self.wanted = program.wanted
            out = program.run([*z, length, *known.shared, *own])
            end, slopes = contiguous(out[:n]), n * count if self.dense else 0
            self.stages, self.out = stages[i * count : (i + 1) * count], out
            self._leave(own, out[n + slopes :])
            return end, split(out[n : n + slopes], n)

        return take

    def try_to_keep(self, z: State, span: Span) -> bool:
        """Let adaptive steps give what their vjp needs, unless sizes change."""
        length, tableau = length_tensor(0.0, z[0]), self.known.solver.tableau
        stage = stages_between(tableau, *span)[0]
        rows = self.source.rows([stage] * (tableau.stages + tableau.fsal - 1))
        try:
            attempt = self.known.attempt(z, z, length, rows, True)
            self._first = self.known.first(z, length, self.source.rows([stage]), True)
            self._attempt = attempt
            self.keep = True
        except Uncompilable:
            pass  # or for a reason that shows at the next try
        return self.keep

    def accept(self, made: Step) -> None:
        """Keep the last adaptive step: it was accepted."""
        assert self.tried is not None
        self.tape.append(self.tried)

    def first(self, stage: Stage, z: State) -> State:
        known, n = self.known, self.known.leaves
        rows, length = self.source.rows([stage]), length_tensor(0.0, self.like)
        if self._first is None:
            self._first = known.first(z, length, rows, self.keep)
        program = self._first
        out = program.run([*z, length, *known.shared, *rows])
        last = n + 1 + self.source.state
        self._leave(rows, out[n + 1 : last])
        self.sizes = out[n]
        if self.keep:
            self.tape.append(Kept(program, [stage], out[last:], len(out) - last, False))
        return contiguous(out[:n])

    def change(self, stage: Stage, h: float, z: State, k: State) -> float:
        rows, length = self.source.rows([stage]), length_tensor(h, self.like)
        program = self.known.change(z, k, length, rows)
        return float(program.run([*z, length, *self.known.shared, *rows, *k])[0])

    def attempt(
        self, stages: Sequence[Stage], h: float, z: State, k: State
    ) -> tuple[State, list[State], float]:
        known, n, k = self.known, self.known.leaves, contiguous(k)
        length, rows = length_tensor(h, self.like), self.source.rows(stages)
        if self._attempt is None:
            self._attempt = known.attempt(z, k, length, rows, self.keep)
        program = self._attempt
        out = program.run([*z, length, *known.shared, *rows, *k])
        slopes = known.solver.tableau.fsal if self.keep else len(stages)
        last = n * (1 + slopes)
        end = last + 1 + self.source.state
        self._leave(rows, out[last + 1 : end])
        if self.keep:
            fsal = known.solver.tableau.fsal
            self.tried = Kept(program, stages, out[end:], len(out) - end, True, fsal)
        return contiguous(out[:n]), [k, *split(out[n:last], n)], float(out[last])

    def _leave(self, rows: Sequence[Tensor], state: Sequence[Tensor]) -> None:
        first = self.source.weights
        for row, new in zip(rows[first:], state[: self.source.state], strict=False):
            row.copy_(new)


def with_programs(
    dynamics: Dynamics,
    programs: Programs,
    solver: RungeKutta,
    z: State,
    span: Span,
    save_at: Saves,
    dense: bool = False,
) -> CompiledSteps:
    """Let dynamics take compiled steps, which give the slopes at their stages if asked to."""
    first = stages_between(solver.tableau, *span)[0]
    kind = tuple((x.shape, x.dtype) for x in z)
    if kind not in programs.checked:
        # Mistakes of a field show in a plain evaluation, with a sentence on what is wrong.
        try:
            with torch.no_grad(), fork_rng(z):
                dynamics.at([first])[0](z)
        except ArgumentError as error:  # which may be none for Backprop
            raise Uncompilable(str(error)) from error
        programs.checked.add(kind)
    inner = dense or any(0 < abs(s - span[0]) < abs(span[1] - span[0]) for s in _depths(save_at))
    taken = CompiledSteps(programs, solver, dynamics.source(), z, inner)
    dynamics.steps = taken
    return taken


def _depths(save_at: Saves) -> Sequence[float]:
    return [0.5] if isinstance(save_at, EveryStep) else save_at


def length_tensor(h: float, like: Tensor) -> Tensor:
    """The length of a step as a tensor, in single or double precision."""
    wide = torch.float64 if like.dtype == torch.float64 else torch.float32
    return torch.full((), h, dtype=wide, device=like.device)  # faster than torch.tensor
