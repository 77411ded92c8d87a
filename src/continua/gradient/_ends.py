"""Where a solve ends: gradients of the ends of the span, and what is handed back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from continua._errors import SolveError
from continua.solve import Dynamics, Solution, Stage, State, Trajectory, sides

from ._problem import Problem

Ends = tuple[float | Tensor, float | Tensor]


def with_end(dynamics: Dynamics, z: State, ends: Ends, problem: Problem, at_end: bool) -> State:
    """The state with the gradient of an end point of the span attached.

    By Leibniz, moving the end by ds moves the state there by f ds, and moving the start
    moves the state that starts from it by -f ds.
    """
    end = ends[int(at_end)]
    if not (isinstance(end, Tensor) and end.requires_grad and torch.is_grad_enabled()):
        return z
    stage = Stage(problem.span[int(at_end)], sides(*problem.span)[int(at_end)])
    with torch.no_grad(), dynamics.again() as again:
        (evaluate,) = again.read([stage], leaves=False).evaluate
        slope = evaluate(z)
    sign = 1.0 if at_end else -1.0
    return tuple(
        leaf + _Moved.apply(end, sign * k.to(leaf.dtype))  # type: ignore[no-untyped-call]
        for leaf, k in zip(z, slope, strict=True)
    )


class _Moved(torch.autograd.Function):
    """Zero, whose derivative by the end of a span is the slope there."""

    @staticmethod
    def forward(ctx: Any, end: Tensor, slope: Tensor) -> Tensor:
        ctx.save_for_backward(slope)
        ctx.end = (end.device, end.dtype)
        return torch.zeros_like(slope)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (slope,) = ctx.saved_tensors
        total = (gradient * slope.conj()).sum()
        along = (total.real if total.is_complex() else total).to(*ctx.end)
        once: Tensor = _Once.apply(along)  # type: ignore[no-untyped-call]
        return once, None


class _Once(torch.autograd.Function):
    """A derivative that has no derivative of its own."""

    @staticmethod
    def forward(ctx: Any, value: Tensor) -> Tensor:
        return value.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        raise SolveError(
            "a solve has no second derivatives through an end of its span; make the length of "
            "the span a factor of the field on (0, 1) instead, or use first derivatives alone"
        )


def solution(trajectory: Trajectory, where: Sequence[float], problem: Problem) -> Solution:
    """What a solve gives back.

    Args:
        trajectory: as it was followed.
        where: the depths that were to be saved.
        problem: what it started from.
    """
    final, saved = trajectory.final, trajectory.saved
    if saved and len(saved) == len(where) and where[-1] == problem.span[1]:
        saved = [*saved[:-1], final]  # which has the gradients of the span's ends
    stacked = tuple(
        torch.stack([state[i] for state in saved])
        if saved
        else final[i].new_empty(0, *final[i].shape)
        for i in range(len(final))
    )
    depths = torch.tensor(where[: len(saved)], dtype=torch.float64, device=final[0].device)
    return Solution(
        s=depths,
        z=problem.state(stacked),
        final=problem.state(final),
        cost=None if problem.cost is None else final[-1],
        stats=trajectory.stats,
        status=trajectory.status,
        failure=trajectory.failure,
    )
