"""Polynomials on cells of equal width: buckets, hats, discontinuous lines and splines."""

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
    r"""K buckets of equal width, one value per bucket.

    .. math:: \phi_k(s) = 1 \text{ for } s \in [k/K, (k+1)/K)

    With Euler steps and one bucket per step this is a ResNet; NANODE calls it *bucketed*,
    Dissecting Neural ODEs *stacked*.

    Example:
        >>> PiecewiseConstant(3)(torch.tensor(0.5))
        tensor([0., 1., 0.])
    """

    counted = "buckets"

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
            return 1 + 0 * xi
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
        super().__post_init__()
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


@value
class BSpline(Sized):
    r"""Smooth piecewise polynomials: K B-splines of a given degree, clamped at both ends.

    K - degree cells of equal width; the functions are non-negative, add up to one and have
    degree - 1 continuous derivatives.

    Args:
        size: the number of functions, K > degree.
        degree: of the polynomials on each cell; 3 is the cubic spline.

    Example:
        >>> BSpline(4)(torch.tensor(0.5))
        tensor([0.1250, 0.3750, 0.3750, 0.1250])
    """

    counted = "B-splines"
    degree: int = 3

    def __post_init__(self) -> None:
        super().__post_init__()
        size, degree = self.size, check_count("the degree of a B-spline", self.degree, least=0)
        if size <= degree:
            raise ArgumentError(
                f"{size} B-splines of degree {degree} do not exist: "
                f"use size >= {degree + 1} or degree <= {size - 1}"
            )

    @property
    def breakpoints(self) -> tuple[float, ...]:
        return equispaced(self.size - self.degree + 1)

    @property
    def nodes(self) -> tuple[Point, ...]:
        # Greville's points, at which B-splines interpolate well: averages of their knots.
        p, knots = self.degree, self._knots
        if p == 0:
            return tuple(Point((2 * k + 1) / (2 * self.size)) for k in range(self.size))
        averages = (sum(knots[k + 1 : k + p + 1]) / (p * knots[-1]) for k in range(self.size))
        return tuple(map(Point, averages))

    @property
    def _knots(self) -> list[int]:
        """The knots in units of cells, which are integers and hence exact."""
        p, cells = self.degree, self.size - self.degree
        return [min(max(i - p, 0), cells) for i in range(self.size + p + 1)]

    def _evaluate(self, s: Tensor, side: Side) -> Tensor:
        p = self.degree
        cell, xi = locate(self.breakpoints, s, side)
        knots = torch.tensor(self._knots, dtype=s.dtype, device=s.device)
        at = cell + xi  # s in units of cells, held at the ends
        span = cell + p
        left = [at - knots[span + 1 - j] for j in range(p + 1)]
        right = [knots[span + j] - at for j in range(p + 1)]
        values = [1 + 0 * at]
        for j in range(1, p + 1):  # Cox and de Boor, one degree at a time
            carried = torch.zeros_like(at)
            for r in range(j):
                share = values[r] / (right[r + 1] + left[j - r])
                values[r] = carried + right[r + 1] * share
                carried = left[j - r] * share
            values.append(carried)
        where = cell.unsqueeze(-1) + torch.arange(p + 1, device=s.device)  # [..., p + 1]
        empty = torch.zeros(*s.shape, self.size, dtype=s.dtype, device=s.device)
        return empty.scatter(-1, where, torch.stack(values, -1))

    def degree_on(self, width: float) -> int:
        return self.degree

    @classmethod
    def of_size(cls, size: int) -> BSpline:
        check_count("the number of B-splines", size)
        return cls(size, degree=min(3, size - 1))

    def refined(self, factor: int = 2) -> tuple[Basis, Tensor]:
        p, cells = self.degree, self.size - self.degree
        finer = BSpline(check_count("factor", factor) * cells + p, p)
        # The finer splines span these, so agreement at the nodes is agreement everywhere.
        matrix = torch.linalg.solve(sample(finer, finer.nodes), sample(self, finer.nodes))
        return finer, matrix.clamp(min=0)  # means of old coefficients, so below zero is rounding

    def halved(self) -> BSpline:
        p = self.degree
        return BSpline(max((self.size - p) // 2, 1) + p, p)
