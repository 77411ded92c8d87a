"""What a solve checks before it works, and how it says what went wrong."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

from torch import Tensor
from torch.utils import _pytree as pytree

from continua._errors import ArgumentError, ShapeError
from continua.solve import Solver, Span, State, Status, Trajectory

from ._finite import finite, has_values, non_finite
from ._gradient import Gradient, autocast_on

SaveAt = Sequence[float] | Tensor | Literal["steps"] | None


def checked_span(span: tuple[float | Tensor, float | Tensor]) -> Span:
    """The span as two different finite floats."""
    try:
        start, end = (float(x.detach()) if isinstance(x, Tensor) else float(x) for x in span)
    except (TypeError, ValueError):
        raise ArgumentError(f"a span is a pair of depths, not {span!r}") from None
    if not (math.isfinite(start) and math.isfinite(end)) or start == end:
        raise ArgumentError(f"a span goes from one finite depth to another, not {span!r}")
    return start, end


def checked_gradient(gradient: Gradient) -> Gradient:
    """The gradient, if it is one."""
    if not isinstance(gradient, Gradient):
        raise ArgumentError(
            f"gradient is an instance such as continua.Backprop(), not {gradient!r}"
        )
    return gradient


def checked_solver(solver: Solver) -> Solver:
    """The solver, if it is one."""
    if not isinstance(solver, Solver):
        raise ArgumentError(f"solver is an instance such as continua.RK4(steps=8), not {solver!r}")
    return solver


def checked_depths(save_at: SaveAt, span: Span, solver: Solver) -> list[float]:
    """The depths to save, sorted along the span and inside it."""
    start, end = span
    if save_at is None:
        return [end]
    if isinstance(save_at, str):
        steps = solver.steps
        if save_at != "steps" or steps is None:
            raise ArgumentError(
                f"save_at is a list of depths, or 'steps' for a solver on a fixed grid, "
                f"not {save_at!r} for {solver!r}"
            )
        return [start + (end - start) * n / steps for n in range(steps)] + [end]
    try:
        depths = [float(s) for s in save_at]
    except (TypeError, ValueError):
        raise ArgumentError(f"save_at is a list of depths, not {save_at!r}") from None
    slack = 1e-6 * abs(end - start)  # an end point in single precision is still the end point
    for i, s in enumerate(depths):
        if not min(span) - slack <= s <= max(span) + slack:
            raise ArgumentError(f"save_at has depth {s:g}, outside the span ({start:g}, {end:g})")
        depths[i] = min(max(s, min(span)), max(span))
    if depths != sorted(depths, reverse=end < start):
        raise ArgumentError(f"save_at must run along the span ({start:g}, {end:g}): sort it")
    return depths


def checked_state(x: Any, weight: Tensor | None) -> tuple[State, Any]:
    """The leaves of a state and its structure, None for a single tensor."""
    if isinstance(x, Tensor):
        _check_kind(x, weight)
        return (x,), None
    if not isinstance(x, tuple | dict):
        raise ShapeError(
            f"the state is a tensor, or a tuple or dictionary of tensors, not {type(x).__name__}"
        )
    leaves, structure = pytree.tree_flatten(x)
    if not leaves:
        raise ShapeError("the state is empty")
    for leaf in leaves:
        if not isinstance(leaf, Tensor):
            raise ShapeError(f"the state contains a {type(leaf).__name__}, not only tensors")
        _check_kind(leaf, weight)
    return tuple(leaves), structure


def check_values(z: State) -> None:
    """Refuse a state with values that are not finite, where they can be looked at."""
    for leaf in z:
        if has_values(leaf) and not finite(leaf):
            raise ArgumentError(f"the input has {non_finite(leaf)}")


def _check_kind(x: Tensor, weight: Tensor | None) -> None:
    """Refuse a state whose precision or device is not that of a weight."""
    if not (x.is_floating_point() or x.is_complex()):
        raise ShapeError(f"the state must be floating-point, not {x.dtype}; use x.float()")
    if weight is None or (weight.dtype == x.dtype and weight.device == x.device):
        return
    if weight.device != x.device:
        raise ShapeError(
            f"the input is on {x.device} but the block's weights are on {weight.device}; "
            f"use block.to({str(x.device)!r}) or move the input"
        )
    if (
        not autocast_on(x.device.type)
        and weight.dtype.is_floating_point
        and x.dtype.is_floating_point
        and x.dtype != weight.dtype
    ):
        raise ShapeError(
            f"the input is {x.dtype} but the block's weights are {weight.dtype}; "
            f"use block.to({x.dtype}) or convert the input"
        )


def unflat(leaves: Sequence[Tensor], structure: Any) -> Any:
    """Leaves put back into the structure of the state."""
    return pytree.tree_unflatten(leaves, structure)


def explain(trajectory: Trajectory, solver: Solver) -> str:
    """One sentence on where and why a solve stopped, and what to try."""
    failure = trajectory.failure
    assert failure is not None
    remedy = {
        Status.MAX_STEPS: "raise max_steps, loosen rtol and atol, or use a fixed grid with steps=",
        Status.STEP_TOO_SMALL: "loosen rtol and atol, use double precision, or bound the field",
        Status.NON_FINITE: "look for divisions, logarithms or exploding weights in the field or "
        "the running cost, or take more steps",
    }[trajectory.status]
    sample = "" if failure.sample is None else f", sample {failure.sample}"
    return (
        f"{solver!r} stopped at depth {failure.depth:.6g}{sample}: {trajectory.status.value} "
        f"(field norm {failure.norm:.3g}, step {failure.step:.3g}); {remedy}"
    )
