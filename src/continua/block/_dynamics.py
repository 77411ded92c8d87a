"""The field of a block as dynamics that solvers and gradients can follow."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor

from continua._errors import SolveError
from continua.basis import Constant, PiecewiseConstant, Point
from continua.field import (
    Field,
    FieldRun,
    Samplings,
    Signal,
    StageWeights,
    fields_of,
    owner,
    real,
    tensor,
)
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
from continua.solve import PART, BackwardField, Dynamics, Evaluate, Solver, Source, Stage, in_parts

from ._again import BlockBackwardField, FieldVersion
from ._plan import Plan, depths_of, make_plan, nearby
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

    @property
    def given(self) -> Given:
        return self.x, self.args, self.kwargs


class BlockDynamics(Dynamics):
    """The field of a block, its running cost beside it, for one solve."""

    def __init__(self, block: ODEBlock, call: Call):
        self.field, self.expansion, self.call = block.field, block.expansion, call
        self._twins, self._stretch = block.twins, block.stretch
        self._width = abs(block.span[1] - block.span[0])
        self.breakpoints, self.jumps = self._stretch.breaks, self._stretch.jumps
        if isinstance(call.x, Signal):
            self.breakpoints = tuple(sorted({*self.breakpoints, *call.x.breakpoints}))
            self.jumps += call.x.jumps
        self.plan, span = block.plan, call.problem.span
        own = (span, self.jumps) == (block.span, self._stretch.jumps)
        if call.solver is not block.solver or not own:
            self.plan = make_plan(call.solver, span, self.jumps, self._stretch)
        self.is_field: bool = isinstance(self.field, Field)
        #: whether input and depth are read, by the field or by the running cost
        self.reads_input = self.is_field or call.problem.cost is not None
        if call.solver.adaptive and call.gradient.discrete and torch.is_grad_enabled():
            self.frequency = self._frequency()
        self._run = FieldRun(self.field, self.expansion, self._twins)
        self._weights: StageWeights | None = None  # of the last `at`, if the solve updates state
        self._checked = False
        self._read: dict[str, Tensor] = {}  # what a backward pass reads again
        self._forward_version: FieldVersion | None = None

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
        return (*weights, *self.others(self.call.given))

    @cached_property
    def constants(self) -> list[Tensor]:
        """What trains and is no function of depth: of the cost, or unfrozen after wrapping."""
        known = {id(tensor(self.field, name)) for name in self.expansion.weights}
        own = [p for p in self.field.parameters() if p.requires_grad and id(p) not in known]
        found = [*own, *dependencies(self.call.problem.cost)]
        return list({id(t): t for t in found}.values())

    def others(self, given: Given) -> list[Tensor]:
        """What gets a gradient besides the weights, for an input and arguments."""
        return [*requiring_grad(self._read_of(given)), *self.constants]

    def _read_of(self, given: Given) -> Given:
        """An input and arguments, without an input that nothing reads."""
        return given if self.reads_input else ((), *given[1:])

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
        return any(owner(self.field, name).training for name in self.expansion.state)

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
            self._forward_version = self._version()
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._run.__exit__(kind, error, trace)
        self._weights = None  # a backward pass that evaluates again keeps this object alive

    def commit(self) -> None:
        self._run.commit()

    def accept(self) -> None:
        if self._weights is not None:
            self._run.accept(self._weights)

    def at(self, stages: Sequence[Stage]) -> Sequence[Evaluate]:
        return self._evaluate(self.state_at(self._run, stages), stages)

    def on_grid(self, stages: Callable[[], Sequence[Stage]]) -> Sequence[Evaluate]:
        plan = self.plan
        if plan is None:
            return self.at(stages())
        # A gradient that evaluates the field again keeps nothing of the first time: the weights
        # of all evaluations would be all that grows with their number.
        again = self.call.gradient.job is not None and not torch.is_grad_enabled()
        if again and plan.parts and not self._run.updates and not torch.compiler.is_compiling():
            return in_parts(len(plan.stages), lambda i, j: self._part(plan.parts[i // PART]))
        return self.at(plan.stages)

    def _part(self, part: Plan) -> Sequence[Evaluate]:
        return self._evaluate(self._run.at(part), part.stages)

    def _evaluate(self, weights: StageWeights, stages: Sequence[Stage]) -> Sequence[Evaluate]:
        """The evaluations; the very first of a solve shows the mistakes of a field."""
        problem, given, depths = self.call.problem, self.call.given, self.depths(stages)
        calls = self._calls(self._run, weights, depths, given)
        if self._checked:
            return problem.evaluations(calls, depths, self.call.x)
        self._checked = True
        known = self.others(given) if problem.recomputes else []
        name = type(self.field).__name__
        return problem.first_evaluations(name, calls, depths, self.call.x, known)

    def _calls(
        self, run: FieldRun, weights: StageWeights, depths: Sequence[Tensor], given: Given
    ) -> list[Callable[[Any], Any]]:
        x, args, kwargs = given
        calls = run.calls(weights, args, kwargs)
        if not self.is_field:
            return calls
        return [_with_depth(call, s, x) for call, s in zip(calls, depths, strict=True)]

    # -- reading ---------------------------------------------------------------------------------

    def weights_at(
        self, run: FieldRun, stages: Sequence[Stage], leaves: bool | None
    ) -> StageWeights:
        """Weights and state at any stages."""
        plan = self._plan_of(stages)
        samplings = plan or Samplings(self._stretch.points(stages), self._stretch.bases)
        return run.at(samplings, leaves)

    def state_at(self, run: FieldRun, stages: Sequence[Stage]) -> StageWeights:
        """The same; an update of the state takes these evaluations for those of the solve."""
        weights = self.weights_at(run, stages, None)
        if run.updates:
            self._weights = weights
        return weights

    def points_of(self, stages: Sequence[Stage]) -> Sequence[Point]:
        """Any stages as points of the bases."""
        plan = self._plan_of(stages)
        return plan.points if plan else self._stretch.points(stages)

    def _plan_of(self, stages: Sequence[Stage]) -> Plan | None:
        """The plan, if these are its stages."""
        return self.plan if self.plan is not None and stages is self.plan.stages else None

    def source(self) -> Source:
        return BlockSource(self, self._run, self.call.given, self.others(self.call.given))

    def evaluations(
        self, run: FieldRun, weights: StageWeights, depths: Sequence[Tensor], given: Given
    ) -> list[Evaluate]:
        """The field at some stages for a given input and arguments."""
        calls = self._calls(run, weights, depths, given)
        return self.call.problem.evaluations(calls, depths, given[0])

    def depths(self, stages: Sequence[Stage]) -> Sequence[Tensor]:
        """The depths of stages one by one, in the precision of the state, where they are read."""
        if not self.reads_input:
            return ()
        plan, like = self._plan_of(stages), self.call.problem.z[0]
        exact = plan.depths if plan else depths_of(stages)
        rounded = exact.to(real(like.dtype))
        if isinstance(self.call.x, Signal):
            rounded = rounded.clone()  # the plan is shared
            for i, stage in enumerate(stages):
                self._put_on_side(rounded[i], stage)
        return rounded.to(like.device).unbind(0)

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
        if self._forward_version is not None and not self._forward_version.same(self._version()):
            raise SolveError(CHANGED)
        # Those of the forward pass; they may have been lent to the field for its time alone.
        coefficients = self._read or self._tensors(self.expansion.all_names)
        with FieldRun(self.field, self.expansion, self._twins, coefficients) as run:
            yield BlockBackwardField(self, run, detach(self.call.given))

    def _tensors(self, names: Iterable[str]) -> dict[str, Tensor]:
        return {name: tensor(self.field, name) for name in names}

    def _version(self) -> FieldVersion:
        weights = [self._read[name] for name in self.expansion.weights]
        lent = {id(t) for t in self._tensors(self.expansion.weights).values()}
        others = [p for p in self.field.parameters() if id(p) not in lent]
        read = tensors_in(self._read_of(self.call.given))
        return FieldVersion(self.field, [*weights, *others, *read])


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


def _with_depth(call: Callable[..., Any], s: Tensor, x: Any) -> Callable[[Any], Any]:
    return lambda z: call(s, z, x)
