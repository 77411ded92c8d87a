"""Flows with jumps between their pieces."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from torch import Tensor, nn

from continua._errors import ArgumentError
from continua.block import ODEBlock

from ._with_block import WithBlock


class Jumps(WithBlock):
    r"""A block whose state jumps at chosen depths.

    .. math:: z(s_i^+) = z(s_i^-) + g_i(z(s_i^-))

    Between the jumps it flows as before. With buckets and a jump at every one of their ends this
    is the stacked model with discrete transitions.

    Args:
        block: the flow.
        modules: g_i, one per jump.
        at: the depths s_i, increasing, inside the span; by default where the weights break.

    Dissecting Neural ODEs (Massaroli et al. 2020).

    Example:
        >>> import torch
        >>> import continua as ct
        >>> block = ct.ODEBlock(nn.Linear(2, 2), ct.PiecewiseConstant(3), ct.RK4(steps=6))
        >>> Jumps(block, [nn.Linear(2, 2) for _ in range(2)])(torch.ones(5, 2)).shape
        torch.Size([5, 2])
    """

    def __init__(
        self, block: ODEBlock, modules: Sequence[nn.Module], at: Sequence[float] | None = None
    ):
        super().__init__()
        if not isinstance(block, ODEBlock):
            raise ArgumentError(f"block is an ODEBlock, not {type(block).__name__}")
        low, high = sorted(block.span)
        if at is None:
            inner = {b for basis in block.expansion.bases.values() for b in basis.breakpoints[1:-1]}
            at = sorted(low + (high - low) * b for b in inner)
        self.at = tuple(float(s) for s in at)
        if len(self.at) != len(modules):
            raise ArgumentError(
                f"{len(self.at)} jumps at {list(self.at)} need as many modules, not {len(modules)}"
            )
        if any(b <= a for a, b in pairwise(self.at)) or any(not low < s < high for s in self.at):
            raise ArgumentError(
                f"jumps lie inside the span ({low:g}, {high:g}), one after the other, "
                f"not at {list(self.at)}"
            )
        self.block, self.jumps = block, nn.ModuleList(modules)

    def forward(self, x: Tensor, *args: Any, control: Any = None, **kwargs: Any) -> Tensor:
        """The state at the end of the span."""
        start, end = self.block.span
        forward = end > start
        depths = [start, *(self.at if forward else self.at[::-1]), end]
        jumps = list(self.jumps if forward else reversed(self.jumps))
        solver = self.block.solver
        steps = solver.steps
        seen = x if control is None else control
        z = x
        for i, (a, b) in enumerate(pairwise(depths)):
            part = solver
            if steps is not None:  # its share of the grid
                part = solver.with_steps(max(1, round(steps * abs((b - a) / (end - start)))))
            z = self.block.solve(z, *args, span=(a, b), solver=part, control=seen, **kwargs).final
            if i < len(jumps):
                z = z + jumps[i](z)
        return z
