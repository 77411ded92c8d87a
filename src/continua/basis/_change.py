"""From one basis to another: Gram matrices, projection, interpolation, fitting."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from continua._errors import ArgumentError, ShapeError

from ._basis import Basis, Point, padding, sample
from ._piecewise import PiecewiseConstant
from ._whole import Constant


@functools.cache
def _gauss(count: int) -> tuple[Tensor, Tensor]:
    x, w = np.polynomial.legendre.leggauss(count)
    return torch.from_numpy(0.5 * (x + 1)), torch.from_numpy(0.5 * w)


def quadrature(*bases: Basis) -> tuple[Tensor, Tensor]:
    """Gauss points and weights on [0, 1] for products of two functions of these bases.

    The cells are the union of all breakpoints, so no cell straddles a jump; on each the rule is
    exact for piecewise polynomials and accurate to 1e-12 otherwise.
    """
    ends = sorted({b for basis in bases for b in basis.breakpoints})
    points, weights = [], []
    for a, b in itertools.pairwise(ends):
        x, w = _gauss(max(basis.degree_on(b - a) for basis in bases) + 1)
        points.append(a + (b - a) * x)
        weights.append((b - a) * w)
    return torch.cat(points), torch.cat(weights)


def gram(a: Basis, b: Basis) -> Tensor:
    r"""The inner products of two bases, `[K_a, K_b]` in float64.

    .. math:: G_{jk} = \int_0^1 \phi^a_j(s)\, \phi^b_k(s)\, ds

    Example:
        >>> from continua import PiecewiseConstant, PiecewiseLinear, gram
        >>> gram(PiecewiseConstant(1), PiecewiseLinear(2))
        tensor([[0.5000, 0.5000]], dtype=torch.float64)
    """
    s, w = quadrature(a, b)
    return a(s).T @ (w[:, None] * b(s))


@functools.cache
def _projection(source: Basis, target: Basis) -> Tensor:
    if source == target:
        return padding(target.size, target.size)
    if isinstance(source, Constant):
        source = PiecewiseConstant(1)  # the same function
    if isinstance(source, PiecewiseConstant) and isinstance(target, PiecewiseConstant):
        # The share of each source cell in each target cell, rounded once: in units of
        # 1 / (source.size * target.size) the ends of all cells are whole numbers.
        j = torch.arange(target.size, device="cpu")[:, None] * source.size
        k = torch.arange(source.size, device="cpu") * target.size
        shared = torch.minimum(j + source.size, k + target.size) - torch.maximum(j, k)
        return shared.clamp(min=0).to(torch.float64) / source.size
    s, w = quadrature(source, target)
    root = w.sqrt()[:, None]
    # Least squares on the Gauss points: the normal equations would square the condition.
    return _solved(root * target(s), root * source(s))


def _solved(phi: Tensor, values: Tensor) -> Tensor:
    """The least-squares coefficients `[K, ...]` of values `[P, ...]`."""
    # Never by way of an inverse: the coefficients of a family such as the monomials are poor in
    # digits, and still their function is not.
    coefficients: Tensor = torch.linalg.lstsq(phi, values, driver="gelsd").solution
    return coefficients


def projection(source: Basis, target: Basis) -> Tensor:
    r"""The best approximation in the mean square: `[K_target, K_source]` in float64.

    The coefficients :math:`c = P\, c'` minimise

    .. math:: \int_0^1 \Big( \sum_j \phi_j(s)\, c_j - \sum_k \phi'_k(s)\, c'_k \Big)^2 ds

    over the target's functions :math:`\phi`. Exact where the target contains the source.

    Example:
        >>> from continua import PiecewiseConstant, projection
        >>> projection(PiecewiseConstant(4), PiecewiseConstant(2))
        tensor([[0.5000, 0.5000, 0.0000, 0.0000],
                [0.0000, 0.0000, 0.5000, 0.5000]], dtype=torch.float64)
    """
    return _projection(source, target).clone()


def interpolation(source: Basis, target: Basis) -> Tensor:
    r"""Agreement at the target's nodes: `[K_target, K_source]` in float64.

    Cheaper than `projection` and local, but it ignores the source between the nodes.

    Example:
        >>> from continua import PiecewiseConstant, PiecewiseLinear, interpolation
        >>> interpolation(PiecewiseLinear(2), PiecewiseConstant(2))
        tensor([[0.7500, 0.2500],
                [0.2500, 0.7500]], dtype=torch.float64)
    """
    functions, values = sample(target, target.nodes), sample(source, target.nodes)
    nodal = torch.equal(functions, padding(target.size, target.size))
    return values if nodal else _solved(functions, values)


def least_squares(phi: Tensor, rcond: float) -> Tensor:
    """The pseudo-inverse `[K, P]` of the values `[P, K]` of a basis at P points.

    Singular values below `rcond` times the largest count as zero.
    """
    if torch.equal(phi, torch.eye(*phi.shape, dtype=phi.dtype, device=phi.device)):
        return phi.T.contiguous()
    inverse: Tensor = torch.linalg.pinv(phi, rtol=rcond)
    # Rounding leaves 1e-17 where the exact inverse has zeros; zeros keep coefficients apart.
    noise = inverse.abs() < 1e-14 * inverse.abs().max()
    unseen = (phi == 0).all(0)  # functions that are zero at every point
    return inverse.masked_fill(noise | unseen[:, None], 0.0)


def fit_coefficients(
    basis: Basis,
    s: Tensor | Sequence[float] | Sequence[Point],
    values: Tensor,
    prior: Tensor | None = None,
) -> Tensor:
    r"""The coefficients whose function comes nearest to given values at given depths.

    With :math:`\Phi_{ik} = \phi_k(s_i)`, the result is

    .. math:: c = p + \Phi^+ (v - \Phi\, p)

    the least-squares solution; the directions that the points do not determine keep the prior p.

    Args:
        basis: the functions to fit with.
        s: P depths, or points that carry their side.
        values: `[P, ...]`.
        prior: `[K, ...]`, zero by default.

    Returns:
        `[K, ...]`, of the dtype of the values.

    Example:
        >>> from continua import PiecewiseConstant, fit_coefficients
        >>> values, prior = torch.tensor([1.0, 3.0]), torch.zeros(3)
        >>> fit_coefficients(PiecewiseConstant(3), [0.1, 0.2], values, prior)
        tensor([2., 0., 0.])
    """
    if isinstance(s, Tensor) and s.dim() != 1:
        raise ShapeError(f"the depths of a fit are a list of numbers, not of shape {list(s.shape)}")
    if not (values.is_floating_point() or values.is_complex()):
        raise ShapeError(f"the values of a fit are floating-point, not {values.dtype}")
    points = [p if isinstance(p, Point) else Point(float(p)) for p in s]
    for depth, _ in points:
        if not math.isfinite(depth):
            raise ArgumentError(f"a depth is a finite number, not {depth!r}")
    if values.shape[:1] != (n := len(points),):
        raise ShapeError(f"{n} depths need values of shape [{n}, ...], got {list(values.shape)}")
    if not points:
        raise ArgumentError("a fit needs at least one depth")
    phi = sample(basis, points)
    # Half precision would call most singular values zero; its digits say nothing of the points.
    eps = torch.finfo(torch.promote_types(values.dtype, torch.float32)).eps
    inverse = least_squares(phi, rcond=max(phi.shape) * eps)
    v = values.to(torch.promote_types(values.dtype, torch.float64)).reshape(len(points), -1)
    shape = [basis.size, *values.shape[1:]]
    if prior is None:
        c = inverse.to(v) @ v
    elif list(prior.shape) != shape:
        raise ShapeError(f"the prior of this fit has shape {shape}, got {list(prior.shape)}")
    else:
        p = prior.to(v).reshape(basis.size, -1)
        c = p + inverse.to(v) @ (v - phi.to(v) @ p)
    return c.reshape(shape).to(values.dtype)
