"""The state of a solve and its running cost, and the field evaluated on them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from continua._errors import ArgumentError, ShapeError
from continua.solve import Evaluate, Span, Stage, State

from ._checks import autocast_on, checked_state, first_call
from ._dependencies import leaves_of, refuse_unknown
from ._gradient import Gradient, leaf

RunningCost = Callable[..., Tensor]


@dataclass(frozen=True)
class Problem:
    """What a solve starts from.

    Attributes:
        z: the leaves of the state, and the integral of the running cost as a further one.
        structure: of the state, None for a single tensor.
        cost: the running cost as a function of depth, state and input.
        given_cost: the same as it was given.
        span: from which depth to which.
        repeated: whether a backward pass will evaluate the field again.
    """

    z: State
    structure: Any
    cost: RunningCost | None
    given_cost: RunningCost | None
    span: Span
    repeated: bool

    @classmethod
    def of(
        cls,
        x: Any,
        cost: RunningCost | None,
        weight: Tensor | None,
        span: Span,
        gradient: Gradient,
    ) -> Problem:
        """Check a state and a running cost."""
        z, structure = checked_state(x, weight)
        # Under autocast the field may compute in half precision; the sum of its steps may not.
        if autocast_on(z[0].device.type):
            half = (torch.float16, torch.bfloat16)
            z = tuple(part.float() if part.dtype in half else part for part in z)
        repeated = torch.is_grad_enabled() and gradient.job is not None
        if cost is None:
            return cls(z, structure, None, None, span, repeated)
        first = z[0]
        total = torch.zeros(first.shape[:1], dtype=real(first.dtype), device=first.device)
        return cls((*z, total), structure, with_input(cost), cost, span, repeated)

    def state(self, leaves: State) -> Any:
        """The state from its leaves, without the running cost."""
        if self.structure is None:
            return leaves[0]
        own = leaves[: len(leaves) - (self.cost is not None)]
        return pytree.tree_unflatten(own, self.structure)

    def depths(self, stages: Sequence[Stage]) -> Sequence[Tensor]:
        """The depths of some stages one by one, in the precision of the state."""
        exact = [float(stage.depth) for stage in stages]
        values = torch.tensor(exact, dtype=torch.float64, device="cpu")
        return values.to(self.z[0].device, real(self.z[0].dtype)).unbind(0)

    def evaluations(
        self, calls: Sequence[Callable[[Any], Any]], depths: Sequence[Tensor], x: Any
    ) -> list[Evaluate]:
        """The field on leaves, the running cost beside it."""
        if self.structure is None and self.cost is None:  # often, and called very often
            return [_single(call) for call in calls]
        if self.cost is None:
            return [self._structured(call) for call in calls]
        each = zip(calls, depths, strict=True)
        return [self._with_cost(call, s, x) for call, s in each]

    def _structured(self, call: Callable[[Any], Any]) -> Evaluate:
        return lambda leaves: tuple(pytree.tree_leaves(call(self.state(leaves))))

    def _with_cost(self, call: Callable[[Any], Any], s: Tensor, x: Any) -> Evaluate:
        def evaluate(leaves: State) -> State:
            z = self.state(leaves)
            assert self.cost is not None
            cost, total = self.cost(s, z, x), leaves[-1]
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
        """The same at the start of a solve, where the first one shows the mistakes of a field."""

        def first(z: Any) -> Any:
            return first_call(name, calls[0], z, self.structure)

        evaluate = self.evaluations([first, *calls[1:]], depths, x)
        if self.repeated:
            evaluate[0] = _refusing(evaluate[0], tensors)
        return evaluate


def _refusing(evaluate: Evaluate, known: Sequence[Tensor]) -> Evaluate:
    """An evaluation that refuses to depend on a tensor which would get no gradient."""

    def checked(z: State) -> State:
        with torch.enable_grad():
            start = leaf(z)
            out = evaluate(start)
        refuse_unknown(out, [*start, *leaves_of(known)])
        return tuple(slope.detach() for slope in out)

    return checked


def _single(call: Callable[[Tensor], Tensor]) -> Evaluate:
    return lambda leaves: (call(leaves[0]),)


def real(dtype: torch.dtype) -> torch.dtype:
    """The real type of the same precision."""
    return dtype.to_real() if dtype.is_complex else dtype


def with_input(cost: RunningCost) -> RunningCost:
    """The cost as a function of depth, state and input, whichever of them it takes."""
    if not callable(cost):
        raise ArgumentError(f"running_cost is a function or a module, not {cost!r}")
    function = cost.forward if isinstance(cost, nn.Module) else cost
    required = [
        p
        for p in inspect.signature(function).parameters.values()
        if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    return cost if len(required) > 2 else lambda s, z, x: cost(s, z)
