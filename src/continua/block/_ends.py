"""Where a solve ends: gradients of the ends of the span, and what is handed back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from continua.solve import Solution, Span, Stage, State, Trajectory, sides

from ._checks import unflat
from ._dynamics import BlockDynamics

Ends = tuple[float | Tensor, float | Tensor]


def with_end(dynamics: BlockDynamics, z: State, ends: Ends, values: Span, at_end: bool) -> State:
    """The state with the gradient of an end point of the span attached.

    By Leibniz, moving the end by ds moves the state there by f ds, and moving the start
    moves the state that starts from it by -f ds.
    """
    end = ends[int(at_end)]
    if not (isinstance(end, Tensor) and end.requires_grad):
        return z
    stage = Stage(values[int(at_end)], sides(*values)[int(at_end)])
    with torch.no_grad(), dynamics.again():
        (evaluate,) = dynamics.read([stage], leaves=False).evaluate
        slope = evaluate(z)
    sign = 1.0 if at_end else -1.0
    moved = (end - end.detach()).to(z[0].device)
    return tuple(leaf + sign * (moved * k).to(leaf.dtype) for leaf, k in zip(z, slope, strict=True))


def solution(
    trajectory: Trajectory,
    final: State,
    where: Sequence[float],
    end: float,
    structure: Any,
    cost: bool,
) -> Solution:
    """What a solve tells.

    Args:
        trajectory: as it was followed.
        final: its end, with the gradients of the span's ends.
        where: the depths that were to be saved.
        end: the last depth of the span.
        structure: of the state, None for a single tensor.
        cost: whether the last leaf is the running cost.
    """
    count = len(final) - cost
    saved = [state[:count] for state in trajectory.saved]
    reached = bool(saved) and len(saved) == len(where) and where[-1] == end
    if reached and final is not trajectory.final:
        saved[-1] = final[:count]
    stacked = [
        torch.stack([state[i] for state in saved])
        if saved
        else final[i].new_empty(0, *final[i].shape)
        for i in range(count)
    ]
    depths = torch.tensor(where[: len(saved)], dtype=torch.float64, device=final[0].device)
    return Solution(
        s=depths,
        z=stacked[0] if structure is None else unflat(stacked, structure),
        final=final[0] if structure is None else unflat(final[:count], structure),
        cost=final[-1] if cost else None,
        stats=trajectory.stats,
        status=trajectory.status,
        failure=trajectory.failure,
    )
