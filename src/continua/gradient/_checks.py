"""Checks of the arguments of a solve, and the messages of its errors."""

from __future__ import annotations

import cmath
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from continua._errors import ArgumentError, ModuleError, ShapeError
from continua.solve import Failure, Solver, Span, State, Status, Trajectory

Ends = tuple[float | Tensor, float | Tensor]
SaveAt = Sequence[float] | Tensor | Literal["steps"] | None


def checked_span(span: Ends) -> Span:
    """The span as two different finite floats."""
    try:
        start, end = (float(x.detach()) if isinstance(x, Tensor) else float(x) for x in span)
    except (TypeError, ValueError):
        number = isinstance(span, int | float)
        remedy = f"write (0, {span})" if number else "give the depths to return as save_at="
        raise ArgumentError(f"a span is a pair of depths, not {span!r}; {remedy}") from None
    if not (math.isfinite(start) and math.isfinite(end)) or start == end:
        raise ArgumentError(f"a span goes from one finite depth to another, not {span!r}")
    return start, end


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
    given = save_at.detach() if isinstance(save_at, Tensor) else save_at
    try:
        depths = [float(s) for s in given]
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


def checked_params(params: Iterable[Tensor] | None) -> list[Tensor]:
    """The parameters as a list, if they are tensors."""
    try:
        found = [params] if isinstance(params, Tensor) else list(params or ())
    except TypeError:
        raise ArgumentError(f"params is a list of tensors, not {params!r}") from None
    for tensor in found:
        if not isinstance(tensor, Tensor):
            raise ArgumentError(f"params is a list of tensors, but has {tensor!r}")
    return found


def checked_state(x: Any, weight: Tensor | None) -> tuple[State, Any]:
    """The leaves of a state and its structure, None for a single tensor."""
    if not isinstance(x, Tensor | tuple | dict):
        raise ShapeError(
            f"the state is a tensor, or a tuple or dictionary of tensors, not {type(x).__name__}"
        )
    leaves, structure = ([x], None) if isinstance(x, Tensor) else pytree.tree_flatten(x)
    if not leaves:
        raise ShapeError("the state is empty")
    for leaf in leaves:
        if not isinstance(leaf, Tensor):
            raise ShapeError(f"the state contains a {type(leaf).__name__}, not only tensors")
        _check_kind(leaf, weight)
    return tuple(leaves), structure


def check_values(z: Iterable[Tensor]) -> None:
    """Refuse a state with values that are not finite."""
    for leaf in z:
        if has_values(leaf) and not finite(leaf):
            raise ArgumentError(f"the input has {non_finite(leaf)}")


def _check_kind(x: Tensor, weight: Tensor | None) -> None:
    """Refuse a state that is not floating-point, or unlike a weight in precision or device."""
    if not (x.is_floating_point() or x.is_complex()):
        raise ShapeError(f"the state must be floating-point, not {x.dtype}; use x.float()")
    if weight is None:
        return
    if weight.device != x.device:
        raise ShapeError(
            f"the input is on {x.device} but the block's weights are on {weight.device}; "
            f"use block.to({str(x.device)!r}) or move the input"
        )
    if x.dtype == weight.dtype or autocast_on(x.device.type):
        return
    if x.is_floating_point() and weight.is_floating_point():
        raise ShapeError(
            f"the input is {x.dtype} but the block's weights are {weight.dtype}; "
            f"use block.to({x.dtype}) or convert the input"
        )


def explain(trajectory: Trajectory, solver: Solver) -> str:
    """One sentence on where and why a solve stopped, and what to try."""
    failure = trajectory.failure
    assert failure is not None
    remedy = {
        Status.MAX_STEPS: "raise max_steps, or loosen rtol and atol; if the steps are tiny "
        "everywhere, the problem is stiff: it needs an implicit method, which continua does not "
        "have",
        Status.STEP_TOO_SMALL: "loosen rtol and atol, use double precision, or bound the field",
        Status.NON_FINITE: "look for divisions, logarithms or exploding weights in the field or "
        "the running cost, or take more steps",
    }[trajectory.status]
    sample = "" if failure.sample is None else f", sample {failure.sample}"
    return (
        f"{solver!r} stopped at depth {failure.depth:.6g}{sample}: {trajectory.status.value} "
        f"(field norm {failure.norm:.3g}, step {failure.step:.3g}); {remedy}"
    )


def first_call(name: str, call: Callable[[Any], Any], z: Any, structure: Any) -> Any:
    """What the field returns, or an error that says what is wrong with it."""
    looks = not torch.compiler.is_compiling()
    parts = [z] if structure is None else pytree.tree_leaves(z)
    before = versions(parts) if looks else []
    uncounted = [p for p in parts if looks and p.is_inference() and p.is_cpu and has_values(p)]
    copies = [p.clone() for p in uncounted]
    try:
        out = call(z)
    except (RuntimeError, TypeError, ValueError, IndexError) as error:
        if type(error) not in (RuntimeError, TypeError, ValueError, IndexError):
            raise  # a subclass says more: one of ours, or of another library
        check_values(parts)  # values that are not finite may be the cause
        raise ShapeError(
            f"the field {name} fails on a state of shape {_shapes(z)}: {error}"
        ) from error
    if looks and (before != versions(parts) or not all(map(torch.equal, uncounted, copies))):
        raise ModuleError(
            f"the field {name} changes the state it is given in place; a solver needs that "
            "state again: use inplace=False"
        )
    if structure is None and not isinstance(out, Tensor):
        raise ShapeError(f"the field {name} returned {type(out).__name__}, not a tensor")
    if structure is not None and pytree.tree_structure(out) != structure:
        raise ShapeError(
            f"the field {name} returned a {type(out).__name__} of another structure than "
            f"the state, which is a {type(z).__name__} of {_shapes(z)}"
        )
    if _shapes(out) != _shapes(z):
        raise ShapeError(
            f"the field {name} maps a state of shape {_shapes(z)} to "
            f"{_shapes(out)}; dz/ds must have the shape of z"
        )
    return out


def _shapes(z: Any) -> list[Any]:
    """The shape of a state, or the shapes of its parts."""
    if isinstance(z, Tensor):
        return list(z.shape)
    return [list(part.shape) for part in pytree.tree_leaves(z)]


def versions(tensors: Iterable[Tensor]) -> list[int | None]:
    """The version counters of tensors; inference tensors have none."""
    return [None if t.is_inference() else t._version for t in tensors]


def autocast_on(device: str) -> bool:
    """Whether autocast is enabled for a type of device."""
    if device == "meta" or not torch.amp.is_autocast_available(device):
        return False
    return torch.is_autocast_enabled(device)


def tracing() -> bool:
    """Whether a dispatch mode is active, such as tracing or fake tensors."""
    return torch._C._len_torch_dispatch_stack() > 0


def has_values(x: Tensor) -> bool:
    """Whether the values of a tensor can be read: not while tracing, nor under vmap."""
    if torch.compiler.is_compiling() or x.is_meta or tracing():
        return False
    return not torch._C._functorch.is_functorch_wrapped_tensor(x)


def finite(x: Tensor) -> bool:
    """Whether all values are finite; if their sum is, they are."""
    return cmath.isfinite(x.sum().item()) or bool(torch.isfinite(x.detach()).all())


def non_finite(x: Tensor) -> str:
    """A sentence on the values of a tensor that are not finite."""
    bad = ~torch.isfinite(x.detach())
    kind = "NaN" if x.detach().isnan().any() else "infinite"
    sample = f", first in sample {int(bad.nonzero()[0, 0])}" if x.dim() else ""
    return f"{int(bad.sum())} {kind} of {x.numel()} values{sample}; clean the data before"


def check_end(trajectory: Trajectory, end: float) -> Trajectory:
    """The trajectory, marked as failed if its end is not finite, as a fixed grid may leave it."""
    if trajectory.status is not Status.SUCCESS or not has_values(trajectory.final[0]):
        return trajectory
    bad = next((leaf for leaf in trajectory.final if not finite(leaf)), None)
    if bad is None:
        return trajectory
    sample = int((~bad.detach().isfinite()).nonzero()[0, 0]) if bad.dim() else None
    failure = Failure(end, sample, math.nan, trajectory.stats.step_sizes[-1])
    return replace(trajectory, status=Status.NON_FINITE, failure=failure)
