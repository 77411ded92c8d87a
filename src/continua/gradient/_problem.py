"""The state of a solve, its running cost, and the dynamics of a callable."""

from __future__ import annotations

import contextlib
import copy
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from continua._errors import ArgumentError, ShapeError
from continua.solve import (
    BackwardField,
    Dynamics,
    Evaluate,
    Interpolant,
    Reading,
    Solution,
    Source,
    Span,
    Stage,
    State,
    Traced,
    Trajectory,
)

from ._checks import Ends, autocast_on, checked_params, checked_span, checked_state, first_call
from ._dependencies import (
    UPDATES,
    dependencies,
    detach,
    leaves_of,
    reachable,
    requiring_grad,
    with_update_check,
)
from ._gradient import Gradient, as_leaves
from ._programs import Programs, exchanged, known_shared
from ._trace import Uncompilable

RunningCost = Callable[..., Tensor]


@dataclass(frozen=True)
class Problem:
    """What a solve starts from."""

    z: State  # the leaves of the state, then the integral of the running cost if there is one
    structure: Any  # of the state, None for a single tensor
    cost: RunningCost | None  # a function of depth, state and input
    ends: Ends  # the span as it was given; an end may require a gradient
    span: Span
    recomputes: bool  # whether a backward pass will evaluate the field again

    @classmethod
    def of(
        cls, x: Any, cost: RunningCost | None, weight: Tensor | None, ends: Ends, gradient: Gradient
    ) -> Problem:
        """Check a state, a running cost and a span."""
        z, structure = checked_state(x, weight)
        # Under autocast the field may compute in half precision; the sum of its steps may not.
        if autocast_on(z[0].device.type):
            half = (torch.float16, torch.bfloat16)
            z = tuple(part.float() if part.dtype in half else part for part in z)
        if cost is not None:
            cost, first = with_input(cost), z[0]
            total = torch.zeros(first.shape[:1], dtype=real(first.dtype), device=first.device)
            z = (*z, total)
        recomputes = torch.is_grad_enabled() and gradient.job is not None
        return cls(z, structure, cost, ends, checked_span(ends), recomputes)

    def state(self, leaves: State) -> Any:
        """The state from its leaves, without the running cost."""
        if self.structure is None:
            return leaves[0]
        own = leaves[: len(leaves) - (self.cost is not None)]
        return pytree.tree_unflatten(own, self.structure)

    def solution(
        self,
        trajectory: Trajectory,
        s: Tensor,
        z: State,
        path: Interpolant | None = None,
        event_at: Tensor | None = None,
    ) -> Solution:
        """The solution with the states z at the depths s; it can be called if it has a path."""
        final = trajectory.final
        return Solution(
            s=s,
            z=self.state(z),
            final=self.state(final),
            cost=None if self.cost is None else final[-1],
            stats=trajectory.stats,
            status=trajectory.status,
            failure=trajectory.failure,
            event_at=event_at,
            dense=None if path is None else lambda s: self.state(path(s)),
        )

    def depths(self, stages: Sequence[Stage]) -> Sequence[Tensor]:
        """The depths of some stages as scalar tensors, in the precision of the state."""
        exact = [float(stage.depth) for stage in stages]
        values = torch.tensor(exact, dtype=torch.float64, device="cpu")
        return values.to(self.z[0].device, real(self.z[0].dtype)).unbind(0)

    def evaluations(
        self, calls: Sequence[Callable[[Any], Any]], depths: Sequence[Tensor], x: Any
    ) -> list[Evaluate]:
        """The field on the leaves of the state, and the running cost as the last slope.

        Args:
            calls: the field on the state, one for each depth.
            depths: of the running cost.
            x: the input of the running cost.
        """
        if self.cost is not None:
            return [self._with_cost(call, s, x) for call, s in zip(calls, depths, strict=True)]
        return [self._without_cost(call) for call in calls]

    def _without_cost(self, call: Callable[[Any], Any]) -> Evaluate:
        if self.structure is None:
            return lambda leaves: (call(leaves[0]),)
        return lambda leaves: tuple(pytree.tree_leaves(call(self.state(leaves))))

    def _with_cost(self, call: Callable[[Any], Any], s: Tensor, x: Any) -> Evaluate:
        def evaluate(leaves: State) -> State:
            z, total = self.state(leaves), leaves[-1]
            assert self.cost is not None
            cost = self.cost(s, z, x)
            if not isinstance(cost, Tensor) or cost.shape != total.shape:
                got = list(cost.shape) if isinstance(cost, Tensor) else type(cost).__name__
                raise ShapeError(
                    f"the running cost returns one number per sample, shape {list(total.shape)}, "
                    f"not {got}; sum or average over the other dimensions"
                )
            return (*pytree.tree_leaves(call(z)), cost)

        return evaluate

    def first_evaluations(
        self,
        name: str,
        calls: Sequence[Callable[[Any], Any]],
        depths: Sequence[Tensor],
        x: Any,
        tensors: Sequence[Tensor],
    ) -> list[Evaluate]:
        """The first evaluations of a solve, of which the very first one checks the field.

        Args:
            name: of the field, for messages.
            calls, depths, x: as in `evaluations`.
            tensors: those that get a gradient.
        """

        def first(z: Any) -> Any:
            return first_call(name, calls[0], z, self.structure)

        evaluate = self.evaluations([first, *calls[1:]], depths, x)
        if self.recomputes:
            evaluate[0] = _with_dependency_check(evaluate[0], tensors)
        return evaluate


def _with_dependency_check(evaluate: Evaluate, known: Sequence[Tensor]) -> Evaluate:
    """The evaluation, refusing to depend on an unknown tensor that requires a gradient."""

    def checked(z: State) -> State:
        with torch.enable_grad():
            start = as_leaves(z)
            out = evaluate(start)
        listed = {id(tensor) for tensor in (*start, *leaves_of(known))}
        for tensor in leaves_of(out):
            if id(tensor) not in listed:
                raise ArgumentError(
                    "the field or the running cost depends on a tensor of shape "
                    f"{list(tensor.shape)} that requires a gradient but was not found; name it in "
                    "params=, make it a parameter of the field's module, or use Backprop()"
                )
        return tuple(slope.detach() for slope in out)

    return checked


def real(dtype: torch.dtype) -> torch.dtype:
    """The real type of the same precision."""
    return dtype.to_real() if dtype.is_complex else dtype


def with_input(cost: RunningCost) -> RunningCost:
    """The cost as a function of depth, state and input; it may take depth and state alone."""
    if not callable(cost):
        raise ArgumentError(f"running_cost is a function or a module, not {cost!r}")
    function = cost.forward if isinstance(cost, nn.Module) else cost
    required = [
        p
        for p in inspect.signature(function).parameters.values()
        if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    return cost if len(required) > 2 else lambda s, z, x: cost(s, z)


class CallableDynamics(Dynamics):
    """A callable f(s, z, *args) for one solve.

    Args:
        f: the callable.
        problem: what the solve starts from.
        args: further arguments of f.
        params: tensors that f depends on, besides those that are found.
        x: what a running cost sees as the input.
    """

    varies = reads_depth = True

    def __init__(self, f: Any, problem: Problem, args: tuple[Any, ...], params: Any, x: Any):
        self.f, self.problem, self.args = f, problem, args
        self.x = () if problem.cost is None else x
        self._params, self._checked = checked_params(params), False

    @property
    def tensors(self) -> tuple[Tensor, ...]:  # type: ignore[override]
        """The tensors among the arguments that require a gradient, and the parameters."""
        return (*requiring_grad((self.args, self.x)), *self.params)

    @cached_property
    def params(self) -> list[Tensor]:
        """The leaf tensors that the field and the running cost depend on."""
        found = [*dependencies(self.f), *dependencies(self.problem.cost)]
        return list({id(t): t for t in (*found, *leaves_of(self._params))}.values())

    @property
    def random(self) -> bool:  # type: ignore[override]
        return not isinstance(self.f, nn.Module) or any(m.training for m in self.f.modules())

    def at(self, stages: Sequence[Stage]) -> Sequence[Evaluate]:
        depths = self.problem.depths(stages)
        if self._checked:
            return self.evaluations(depths)
        self._checked = True
        calls = self._calls(depths)
        known: Sequence[Tensor] = ()
        if self.problem.recomputes:
            known, calls[0] = self.tensors, with_update_check(self.f, calls[0])
        name = getattr(self.f, "__name__", type(self.f).__name__)
        return self.problem.first_evaluations(name, calls, depths, self.x, known)

    def evaluations(self, depths: Sequence[Tensor]) -> list[Evaluate]:
        """The field at some depths, and the running cost beside it."""
        return self.problem.evaluations(self._calls(depths), depths, self.x)

    def _calls(self, depths: Sequence[Tensor]) -> list[Callable[[Any], Any]]:
        return [lambda z, s=s: self.f(s, z, *self.args) for s in depths]  # type: ignore[misc]

    @property
    def reached(self) -> object:
        """What compiled steps depend on besides arguments."""
        return self.f

    def source(self) -> Source:
        return CallableSource(self)

    @contextlib.contextmanager
    def backward_field(self) -> Iterator[BackwardField]:
        detached = copy.copy(self)
        detached.args, detached.x = detach((self.args, self.x))
        yield _CallableBackwardField(detached)


class _CallableBackwardField(BackwardField):
    def __init__(self, dynamics: CallableDynamics):
        self._dynamics, self._leaves = dynamics, dynamics.tensors
        super().__init__(len(self._leaves))

    def read(self, stages: Sequence[Stage], leaves: bool = True) -> Reading:
        evaluate = self._dynamics.evaluations(self._dynamics.problem.depths(stages))
        found = self._leaves if leaves else ()
        return Reading(evaluate, found, self.accumulate, [range(len(found))] * len(stages))

    def source(self) -> Source:
        return self._dynamics.source()


class CallableSource(Source):
    """A callable for compiled steps: depths vary, and everything else that it reads is shared."""

    def __init__(self, dynamics: CallableDynamics):
        self._dynamics, self._leaves = dynamics, dynamics.tensors
        self.code = (dynamics.reached, dynamics.problem.cost)
        tensors, plain = reachable((self.code, dynamics.args, dynamics.x, self._leaves))
        self.signature = [*plain, dynamics.problem.structure]
        self.shared = known_shared(tensors, self._leaves)

    def rows(self, stages: Sequence[Stage]) -> Sequence[Tensor]:
        return [torch.stack(list(self._dynamics.problem.depths(stages)))]

    def traced(self, stages: Sequence[Stage]) -> Traced:
        depths = self._dynamics.problem.depths(stages)
        evaluate = self._dynamics.evaluations(depths)

        def on(shared: Sequence[Tensor], rows: Sequence[Tensor]) -> tuple[list[Evaluate], Any]:
            others = zip((*self.shared, *depths), (*shared, *rows[0].unbind(0)), strict=True)
            table = {id(t): other for t, other in others}
            return [exchanged(f, table) for f in evaluate], lambda h: ()

        return on

    def pull(self, stages: Sequence[Stage], gradients: Mapping[int, Sequence[Tensor]]) -> None:
        return None

    def gradients(self, shared: Mapping[int, Tensor]) -> Sequence[Tensor | None]:
        place, remaining = {id(t): i for i, t in enumerate(self.shared)}, dict(shared)
        return [remaining.pop(place[id(t)], None) for t in self._leaves]  # one may be there twice


def refuse_state(f: Callable[..., Any], programs: Programs | None = None) -> None:
    """Refuse a module that updates its state, which a second evaluation would update again."""
    if not isinstance(f, nn.Module):
        return
    for name, module in f.named_modules():
        if module.training and any(b.is_floating_point() for b in module.buffers(recurse=False)):
            if programs is not None:
                raise Uncompilable("a function's state is not updated by programs: use an ODEBlock")
            raise ArgumentError(f"{name or type(f).__name__!r} {UPDATES}")
