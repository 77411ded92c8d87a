"""The field of a block as dynamics that solvers and gradients can follow."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor

from continua._errors import SolveError
from continua.basis import Basis, Constant, PiecewiseConstant, Point
from continua.field import Field, FieldRun, Sampling, Signal, StageWeights, fields_of, real, tensor
from continua.gradient import (
    CHANGED,
    Ends,
    Gradient,
    Problem,
    RunningCost,
    dependencies,
    detach,
    requiring_grad,
    tensors_in,
)
from continua.solve import BackwardField, Dynamics, Evaluate, Solver, Source, Stage, in_parts

from ._again import BlockBackwardField, Unchanged
from ._plan import Plan, nearby
from ._source import BlockSource

if TYPE_CHECKING:
    from ._block import ODEBlock


#: the input, and further arguments of the field
Given = tuple[Any, tuple[Any, ...], dict[str, Any]]


@dataclass(frozen=True)
class Call:
    """What a block is called with."""

    problem: Problem
    x: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    solver: Solver
    gradient: Gradient


class BlockDynamics(Dynamics):
    """The field of a block, its running cost beside it, for one solve."""

    def __init__(self, block: ODEBlock, call: Call):
        self.field, self.expansion, self.call = block.field, block.expansion, call
        self._twins, self._stretch = block.twins, block.stretch
        self._width = abs(block.span[1] - block.span[0])
        self.plan: Plan | None = None
        if call.solver is block.solver and call.problem.span == block.span:
            self.plan = block.plan
        self.breakpoints, self.jumps = self._stretch.breaks, self._stretch.jumps
        if isinstance(call.x, Signal):
            self.breakpoints = tuple(sorted({*self.breakpoints, *call.x.breakpoints}))
            self.jumps += call.x.jumps
            if call.solver.schedule(block.span, ()) != call.solver.schedule(block.span, self.jumps):
                self.plan = None  # a reversible method has further stages where the signal jumps
        self.is_field: bool = isinstance(self.field, Field)
        if call.solver.adaptive and call.gradient.discrete and torch.is_grad_enabled():
            self.frequency = self._frequency()
        self._run = FieldRun(self.field, self.expansion, self._twins)
        self._weights: StageWeights | None = None
        self._checked = False
        self._read: dict[str, Tensor] = {}  # what a backward pass reads again
        self._unchanged: Unchanged | None = None

    def _frequency(self) -> float:
        weights = self.expansion.weights.items()
        trained = {basis for name, basis in weights if tensor(self.field, name).requires_grad}
        own = max((basis.frequency for basis in trained), default=0.0) / self._width
        # Coefficients of a field's own basis that vary with depth: products, so they add.
        return own + max((field.depth_frequency for field in self._fields), default=0.0)

    # -- what gradients ask ----------------------------------------------------------------------

    @cached_property
    def tensors(self) -> tuple[Tensor, ...]:  # type: ignore[override]
        """The coefficients of the weights, then input and arguments, then constants that train."""
        weights = [tensor(self.field, name) for name in self.expansion.weights]
        return (*weights, *requiring_grad(self.given()), *self.constants)

    @cached_property
    def constants(self) -> list[Tensor]:
        """What trains and is no function of depth: of the cost, or unfrozen after wrapping."""
        known = {id(tensor(self.field, name)) for name in self.expansion.weights}
        own = [p for p in self.field.parameters() if p.requires_grad and id(p) not in known]
        found = [*own, *dependencies(self.call.problem.cost)]
        return list({id(t): t for t in found}.values())

    def given(self) -> Any:
        """What a backward pass may differentiate by besides weights: input and arguments."""
        reads_input = self.is_field or self.call.problem.cost is not None
        return (self.call.x if reads_input else (), self.call.args, self.call.kwargs)

    @cached_property
    def _fields(self) -> list[Field]:
        return fields_of(self.field)

    @property
    def varies(self) -> bool:  # type: ignore[override]
        """Whether a weight is other than a bucket or a constant, or something reads the depth."""
        plain = (Constant, PiecewiseConstant)
        return self.reads_depth or any(
            not isinstance(basis, plain) for basis in set(self.expansion.weights.values())
        )

    @property
    def reads_depth(self) -> bool:  # type: ignore[override]
        """Whether the field or the cost reads the depth itself, or the input is a signal."""
        return (
            isinstance(self.call.x, Signal)
            or self.call.problem.cost is not None
            or any(field.reads_depth for field in self._fields)
        )

    @property
    def random(self) -> bool:  # type: ignore[override]
        """Whether a part of the field is training: then it may draw random numbers."""
        return any(module.training for module in self.field.modules())

    @property
    def stateful(self) -> bool:  # type: ignore[override]
        """Whether batch norm, or anything else with state, is training."""
        return any(
            self.field.get_submodule(name.rpartition(".")[0]).training
            for name in self.expansion.state
        )

    def points(self, width: float, error: float) -> int:
        share = min(abs(width) / self._width, 1.0)
        bases = set(self.expansion.weights.values())
        own = max((field.points_on(abs(width), error) for field in self._fields), default=1)
        # Products of functions of depth: their degrees add.
        return own - 1 + max((basis.points_on(share, error) for basis in bases), default=1)

    # -- one solve -------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        self._run.__enter__()
        if self.call.problem.recomputes:
            self._read = {**self._run.coefficients}
            self._read |= {name: self._read[name].clone() for name in self.expansion.state}
            self._unchanged = self._seen()
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._run.__exit__(kind, error, trace)
        self._weights = None  # a backward pass that evaluates again keeps this object alive

    def commit(self) -> None:
        self._run.commit()

    def accept(self) -> None:
        if self._weights is not None:  # none if weights are read in parts, without an update
            self._run.accept(self._weights)

    def at(self, stages: Sequence[Stage]) -> Sequence[Evaluate]:
        self._weights = self.weights_at(self._run, stages, None)
        return self._first(self._weights, self.depths(stages))

    def on_grid(self, stages: Callable[[], Sequence[Stage]]) -> Sequence[Evaluate]:
        if self.plan is None:
            return self.at(stages())
        plan = self.plan.placed(*self._kind(self._run))
        if self._in_parts(plan):
            return in_parts(len(plan.points), lambda i, j: self._part(plan.part(i, j)))
        self._weights = self._run.on_grid(plan.samplings, plan.points, plan.inverses)
        return self._first(self._weights, self._plan_depths(plan))

    def _part(self, plan: Plan) -> Sequence[Evaluate]:
        weights = self._run.at(plan.samplings, plan.points)
        return self._first(weights, self._plan_depths(plan))

    def _in_parts(self, plan: Plan) -> bool:
        """Whether weights are to be read a few evaluations at a time.

        A gradient that evaluates the field again keeps nothing of the first time: the weights of
        all evaluations would be all that grows with their number.
        """
        if self.call.gradient.job is None or torch.is_grad_enabled():
            return False
        return not self._run.updates and plan.heavy and not torch.compiler.is_compiling()

    def _first(self, weights: StageWeights, depths: Sequence[Tensor]) -> Sequence[Evaluate]:
        """The evaluations; the very first of a solve shows the mistakes of a field."""
        problem, given = self.call.problem, (self.call.x, self.call.args, self.call.kwargs)
        calls = self._calls(self._run, weights, depths, given)
        if self._checked:
            return problem.evaluations(calls, depths, self.call.x)
        self._checked = True
        known = [*requiring_grad(self.given()), *self.constants] if problem.recomputes else []
        name = type(self.field).__name__
        return problem.first_evaluations(name, calls, depths, self.call.x, known)

    def _calls(
        self, run: FieldRun, weights: StageWeights, depths: Sequence[Tensor], given: Given
    ) -> list[Callable[[Any], Any]]:
        x, args, kwargs = given
        calls = run.calls(weights, args, kwargs)
        if not self.is_field:
            return calls
        return [_called(call, s, x) for call, s in zip(calls, depths, strict=True)]

    # -- reading ---------------------------------------------------------------------------------

    def weights_at(
        self, run: FieldRun, stages: Sequence[Stage], leaves: bool | None
    ) -> StageWeights:
        """Weights and state at any stages."""
        return run.at(self.samplings(run, stages), self.points_of(stages), None, leaves)

    def samplings(self, run: FieldRun, stages: Sequence[Stage]) -> Mapping[Basis, Sampling]:
        """The bases at any stages."""
        kind = self._kind(run)
        if self.plan is not None and stages is self.plan.stages:
            return self.plan.placed(*kind).samplings
        points, bases = self.points_of(stages), dict.fromkeys(self.expansion.bases.values())
        return {basis: Sampling.of(basis, points).placed(*kind) for basis in bases}

    def points_of(self, stages: Sequence[Stage]) -> Sequence[Point]:
        """Any stages as points of the bases."""
        return self._stretch.points(stages)

    def state_at(
        self, run: FieldRun, samplings: Mapping[Basis, Sampling], stages: Sequence[Stage]
    ) -> StageWeights:
        """The state at any stages; an update takes these evaluations for those of the solve."""
        plan, inverses = self.plan, None
        if plan is not None and stages is plan.stages:
            inverses = plan.placed(*self._kind(run)).inverses
        weights = run.at(samplings, self.points_of(stages), inverses)
        if run is self._run:
            self._weights = weights
        return weights

    def source(self) -> Source:
        others = [*requiring_grad(self.given()), *self.constants]
        given = self.call.x, self.call.args, self.call.kwargs
        return BlockSource(self, self._run, given, others)

    def evaluations(
        self, run: FieldRun, weights: StageWeights, depths: Sequence[Tensor], given: Given
    ) -> list[Evaluate]:
        """The field at some stages for a given input and arguments."""
        calls = self._calls(run, weights, depths, given)
        return self.call.problem.evaluations(calls, depths, given[0])

    def _kind(self, run: FieldRun) -> tuple[torch.dtype, torch.device]:
        """The finest precision of the coefficients, and their device."""
        like, dtypes = self.call.problem.z[0], set()
        for name in self.expansion.bases:
            like = run.coefficients[name]
            dtypes.add(like.dtype)
        dtype = like.dtype
        for other in dtypes:
            dtype = torch.promote_types(dtype, other)
        return real(dtype), like.device

    def _plan_depths(self, plan: Plan) -> Sequence[Tensor]:
        return self.depths(plan.stages, plan.depths)

    def depths(self, stages: Sequence[Stage], exact: Tensor | None = None) -> Sequence[Tensor]:
        """The depths of stages one by one, in the precision of the state, where they are read."""
        problem = self.call.problem
        if not self.is_field and problem.cost is None:
            return ()
        if exact is None:
            values = [float(stage.depth) for stage in stages]
            exact = torch.tensor(values, dtype=torch.float64, device="cpu")
        rounded = exact.to(real(problem.z[0].dtype))
        if isinstance(self.call.x, Signal):
            for i, stage in enumerate(stages):
                self._put_on_side(rounded[i], stage)
        return rounded.to(problem.z[0].device).unbind(0)

    def _put_on_side(self, s: Tensor, stage: Stage) -> None:
        """Move a rounded depth to its own side of a jump of the signal, in place."""
        jump = nearby(self.breakpoints, float(stage.depth), self._width)
        if jump is None:
            return
        s.fill_(jump)
        if stage.side == "left" and float(s) >= jump:
            s.copy_(torch.nextafter(s, s - 1))
        elif stage.side == "right" and float(s) < jump:
            s.copy_(torch.nextafter(s, s + 1))

    @contextlib.contextmanager
    def backward_field(self) -> Iterator[BackwardField]:
        if self._unchanged is not None and not self._unchanged.same(self._seen()):
            raise SolveError(CHANGED)
        with FieldRun(self.field, self.expansion, self._twins, self._coefficients()) as run:
            yield BlockBackwardField(
                self, run, detach((self.call.x, self.call.args, self.call.kwargs))
            )

    def _coefficients(self) -> dict[str, Tensor]:
        """Those of the forward pass; they may have been lent to the field for its time alone."""
        names = (*self.expansion.weights, *self.expansion.state, *self.expansion.carried)
        return self._read or {name: tensor(self.field, name) for name in names}

    def _seen(self) -> Unchanged:
        weights = [self._read[name] for name in self.expansion.weights]
        lent = {id(tensor(self.field, name)) for name in self.expansion.weights}
        others = [p for p in self.field.parameters() if id(p) not in lent]
        return Unchanged(self.field, [*weights, *others, *tensors_in(self.given())])


def called(
    block: ODEBlock,
    x: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    control: Any,
    ends: Ends | None = None,
    cost: RunningCost | None = None,
    solver: Solver | None = None,
    gradient: Gradient | None = None,
) -> BlockDynamics:
    """The field of a block for one call; span, solver and gradient are the block's by default."""
    name = next(iter(block.expansion.weights), None)
    weight = next(block.field.parameters(), None) if name is None else tensor(block.field, name)
    used = gradient or block.gradient
    problem = Problem.of(x, cost, weight, block.span if ends is None else ends, used)
    if isinstance(control, Signal):
        control.check(problem.span)
    seen = x if control is None else control
    return BlockDynamics(block, Call(problem, seen, args, kwargs, solver or block.solver, used))


def _called(call: Callable[..., Any], s: Tensor, x: Any) -> Callable[[Any], Any]:
    return lambda z: call(s, z, x)
