"""Cells of equal width: buckets, hats, and discontinuous lines."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from continua._errors import ArgumentError
from continua._values import value

from ._basis import Basis, Point, Side, Sized, check_count, equispaced, sample


def locate(breakpoints: tuple[float, ...], s: Tensor, side: Side) -> tuple[Tensor, Tensor]:
    """The cell of s, and where in it s lies, from 0 to 1; beyond the ends the end is held.

    Breakpoints and grid depths are quotients of integers rounded once, so a depth that is a
    breakpoint compares equal to it: no cell is missed by a rounding error.
    """
    interior = torch.tensor(breakpoints[1:-1], dtype=s.dtype, device=s.device)
    cell = torch.searchsorted(interior, s.detach().contiguous(), right=side == "right")
    xi = s.clamp(0, 1) * (len(breakpoints) - 1) - cell
    # Rounding may put a breakpoint a last bit outside its cell, where a plain clamp has slope 0.
    return cell, xi + (xi.clamp(0, 1) - xi).detach()


@value
class PiecewiseConstant(Sized):
    r"""K cells of equal width, one value per cell.

    .. math:: \phi_k(s) = 1 \text{ for } s \in [k/K, (k+1)/K)

    With Euler steps and one cell per step this is a ResNet; NANODE calls it *bucketed*,
    Dissecting Neural ODEs *stacked*.

    Example:
        >>> PiecewiseConstant(3)(torch.tensor(0.5))
        tensor([0., 1., 0.])
    """

    counted = "cells"

    @property
    def breakpoints(self) -> tuple[float, ...]:
        return equispaced(self.size + 1)

    @property
    def nodes(self) -> tuple[Point, ...]:
        return tuple(Point((2 * k + 1) / (2 * self.size)) for k in range(self.size))

    def _evaluate(self, s: Tensor, side: Side) -> Tensor:
        cell, xi = locate(self.breakpoints, s, side)
        # The zero keeps s in the graph: the derivative exists and is zero.
        return one_hot(cell, self.size) + 0 * xi.unsqueeze(-1)

    def degree_on(self, width: float) -> int:
        return 0

    def refined(self, factor: int = 2) -> tuple[Basis, Tensor]:
        finer = PiecewiseConstant(self.size * check_count("factor", factor))
        return finer, sample(self, finer.nodes)


@value
class PiecewiseLinear(Sized):
    r"""Continuous lines between K equispaced nodes: the hat functions of finite elements.

    .. math:: \phi_k(s) = \max(0, 1 - |(K-1)\,s - k|)

    A single node is a constant.

    Example:
        >>> PiecewiseLinear(3)(torch.tensor(0.25))
        tensor([0.5000, 0.5000, 0.0000])
    """

    counted = "nodes"

    @property
    def breakpoints(self) -> tuple[float, ...]:
        return equispaced(max(self.size, 2))

    @property
    def nodes(self) -> tuple[Point, ...]:
        return tuple(map(Point, self.breakpoints if self.size > 1 else (0.5,)))

    def _evaluate(self, s: Tensor, side: Side) -> Tensor:
        cell, xi = locate(self.breakpoints, s, side)
        xi = xi.unsqueeze(-1)
        if self.size == 1:
            return torch.ones_like(xi) + 0 * xi
        return one_hot(cell, self.size) * (1 - xi) + one_hot(cell + 1, self.size) * xi

    def degree_on(self, width: float) -> int:
        return min(self.size - 1, 1)

    def refined(self, factor: int = 2) -> tuple[Basis, Tensor]:
        check_count("factor", factor)
        finer = PiecewiseLinear(factor * (self.size - 1) + 1 if self.size > 1 else factor)
        return finer, sample(self, finer.nodes)

    def halved(self) -> PiecewiseLinear:
        return PiecewiseLinear((self.size + 1) // 2)


@value
class DiscontinuousLinear(Sized):
    r"""K/2 cells of equal width, an independent line on each; K is even.

    .. math:: \phi_{2e}(s) = 1 - \xi, \quad \phi_{2e+1}(s) = \xi, \qquad \xi = sK/2 - e \in [0, 1)

    Example:
        >>> DiscontinuousLinear(4)(torch.tensor(0.5), side="left")
        tensor([0., 1., 0., 0.])
    """

    def __post_init__(self) -> None:
        check_count("the number of functions", self.size, least=2)
        if self.size % 2:
            raise ArgumentError(
                f"DiscontinuousLinear has two functions per cell, so its size is even: "
                f"use {self.size - 1} or {self.size + 1}, not {self.size}"
            )

    @property
    def breakpoints(self) -> tuple[float, ...]:
        return equispaced(self.size // 2 + 1)

    @property
    def nodes(self) -> tuple[Point, ...]:
        cells = itertools.pairwise(self.breakpoints)
        return tuple(p for a, b in cells for p in (Point(a, "right"), Point(b, "left")))

    def _evaluate(self, s: Tensor, side: Side) -> Tensor:
        cell, xi = locate(self.breakpoints, s, side)
        xi = xi.unsqueeze(-1)
        return one_hot(2 * cell, self.size) * (1 - xi) + one_hot(2 * cell + 1, self.size) * xi

    def degree_on(self, width: float) -> int:
        return 1

    @classmethod
    def of_size(cls, size: int) -> DiscontinuousLinear:
        check_count("the number of functions", size, least=2)
        return cls(size - size % 2)

    def refined(self, factor: int = 2) -> tuple[Basis, Tensor]:
        finer = DiscontinuousLinear(self.size * check_count("factor", factor))
        return finer, sample(self, finer.nodes)

    def halved(self) -> DiscontinuousLinear:
        return self.of_size(max(self.size // 2, 2))
