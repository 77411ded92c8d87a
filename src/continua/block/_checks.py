"""What a block checks before it works, and how it says what went wrong."""

from __future__ import annotations

import cmath
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from continua._errors import ArgumentError, ShapeError
from continua.basis import Basis
from continua.field import Path, autocasting
from continua.gradient import Gradient
from continua.solve import Failure, Pair, Solver, Span, State, Status, Trajectory

#: of devices, where two tensors can be asked whether they are the same memory
KINDS = ("cpu", "cuda", "mps")


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


def adaptive(solver: Solver) -> bool:
    """Whether the solver chooses its own steps."""
    return isinstance(solver, Pair) and solver.steps is None


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


def with_finite_end(trajectory: Trajectory, end: float) -> Trajectory:
    """The trajectory, marked as failed if its end is not finite, as a fixed grid may leave it."""
    if trajectory.status is not Status.SUCCESS or not has_values(trajectory.final[0]):
        return trajectory
    bad = next((leaf for leaf in trajectory.final if not finite(leaf)), None)
    if bad is None:
        return trajectory
    sample = int((~bad.detach().isfinite()).nonzero()[0, 0]) if bad.dim() else None
    sizes = trajectory.stats.step_sizes
    failure = Failure(end, sample, math.nan, sizes[-1] if sizes else math.nan)
    return Trajectory(
        trajectory.final, trajectory.saved, trajectory.stats, Status.NON_FINITE, failure
    )


def checked_solver(solver: Solver) -> Solver:
    """The solver, if it is one."""
    if not isinstance(solver, Solver):
        raise ArgumentError(f"solver is an instance such as continua.RK4(steps=8), not {solver!r}")
    return solver


def checked_depths(
    save_at: Sequence[float] | Tensor | Literal["steps"] | None, span: Span, solver: Solver
) -> list[float]:
    """The depths to save, sorted along the span and inside it."""
    start, end = span
    if save_at is None:
        return [end]
    if isinstance(save_at, str):
        steps = getattr(solver, "steps", None)
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


def by_rows(fn: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """A conversion that also takes a stack of images' kernels.

    `model.to(memory_format=torch.channels_last)` refuses five dimensions; on a stack of
    kernels it means each kernel.
    """

    def convert(t: Tensor) -> Tensor:
        try:
            return fn(t)
        except RuntimeError as error:
            if t.dim() != 5 or "channels_last" not in str(error):
                raise
            rows = [fn(row).permute(0, 2, 3, 1) for row in t.unbind(0)]
            return torch.stack(rows).permute(0, 1, 4, 2, 3)

    return convert


def summary(bases: Mapping[str, Basis]) -> str:
    """The bases in use, and how many tensors use each where there are several."""
    counts: dict[Basis, int] = {}
    for basis in bases.values():
        counts[basis] = counts.get(basis, 0) + 1
    if len(counts) == 1:
        return repr(next(iter(counts)))
    return ", ".join(f"{basis!r} for {n}" for basis, n in counts.items()) or "none"


def checked_control(control: Any, span: Span) -> Any:
    """What a field sees as its input, if it covers the span."""
    if isinstance(control, Path):
        control.check(span)
    return control


def checked_state(x: Any, weight: Tensor | None) -> tuple[State, Any]:
    """The leaves of a state and its structure, None for a single tensor.

    Args:
        x: what a block was given.
        weight: one of its weights, with which the state must agree.
    """
    if isinstance(x, Tensor):
        check_tensor(x, weight)
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
        check_tensor(leaf, weight)
    return tuple(leaves), structure


def check_tensor(x: Tensor, weight: Tensor | None) -> None:
    """Refuse a state that does not agree with a weight, or has values that are not finite."""
    if weight is None or weight.dtype != x.dtype or weight.device != x.device:
        check_kind(x, weight)
    # On a GPU, looking would wait for all the work before it, in every block.
    if x.is_cpu and has_values(x):
        check_values(x)


def check_values(x: Tensor) -> None:
    """Refuse a state with values that are not finite."""
    if not finite(x):
        raise ArgumentError(f"the input of the block has {non_finite(x)}")


def check_kind(x: Tensor, weight: Tensor | None) -> None:
    """Refuse a state whose precision or device is not that of a weight."""
    if not (x.is_floating_point() or x.is_complex()):
        raise ShapeError(f"the state must be floating-point, not {x.dtype}; use x.float()")
    if weight is None:
        return
    if weight.device != x.device:
        raise ShapeError(
            f"the input is on {x.device} but the block's weights are on {weight.device}; "
            f"use block.to({str(x.device)!r}) or move the input"
        )
    if (
        not autocasting(x)
        and weight.dtype.is_floating_point
        and x.dtype.is_floating_point
        and x.dtype != weight.dtype
    ):
        raise ShapeError(
            f"the input is {x.dtype} but the block's weights are {weight.dtype}; "
            f"use block.to({x.dtype}) or convert the input"
        )


def tracing() -> bool:
    """Whether somebody records operations, or makes believe that they are done."""
    return torch._C._len_torch_dispatch_stack() > 0


def has_values(x: Tensor) -> bool:
    """Whether the tensor can be looked at: not while tracing, nor under vmap."""
    if torch.compiler.is_compiling() or x.is_meta or tracing():
        return False
    return not torch._C._functorch.is_functorch_wrapped_tensor(x)


def finite(x: Tensor) -> bool:
    """Whether all values are finite; their sum tells at once, if it is finite itself."""
    return cmath.isfinite(x.sum().item()) or bool(torch.isfinite(x.detach()).all())


def non_finite(x: Tensor) -> str:
    """Where a tensor is not finite, in words."""
    bad = ~torch.isfinite(x.detach())
    kind = "NaN" if x.detach().isnan().any() else "infinite"
    sample = f", first in sample {int(bad.nonzero()[0, 0])}" if x.dim() else ""
    return f"{int(bad.sum())} {kind} of {x.numel()} values{sample}; clean the data before"
