"""The coefficients of a tensor in another basis."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
from torch import Tensor

from continua.basis import (
    Basis,
    Constant,
    PiecewiseConstant,
    Point,
    interpolation,
    least_squares,
    projection,
    quadrature,
    sample,
)
from continua.block import ODEBlock
from continua.field import non_negative, tensor

from ._blocks import change_basis

MAPPINGS = {"project": projection, "interpolate": interpolation}
#: the smallest weight, relative to the mean over depth
FLOOR = 1e-3
#: entries that are projected at a time
CHUNK = 1 << 15


def coefficients_in(
    target: Basis,
    block: ODEBlock,
    name: str,
    method: str,
    weight: Tensor | None,
    points: Sequence[Point],
) -> Tensor:
    """The coefficients of a tensor of a block in another basis.

    The weight says how much each entry matters at each depth. The points are those where the field
    is evaluated, if this is the same before and after.
    """
    source, stack = block.expansion.bases[name], tensor(block.field, name)
    if weight is not None and method == "project":
        return weighted_projection(source, target, stack, weight)
    mapping = MAPPINGS[method](source, target)
    buckets = isinstance(source, PiecewiseConstant) and isinstance(target, PiecewiseConstant)
    if method == "project" and buckets and points and source.size % target.size:
        # No evaluation sees that cells overlap in part: the values that are read count.
        there = sample(target, points)
        at_points = least_squares(there, rcond=1e-7) @ sample(source, points)
        mapping = at_points.where(there.any(0)[:, None], mapping)
    new = change_basis(mapping, stack)
    if block.expansion.constraints.get(name) is non_negative:
        return _limit(source, stack, target, new)
    return new


def weighted_projection(source: Basis, target: Basis, stack: Tensor, weight: Tensor) -> Tensor:
    r"""The coefficients of the best approximation in a weighted mean square, for each entry.

    .. math:: \min_c \int_0^1 w(s) \Big( \sum_j \phi_j(s)\, c_j - \theta(s) \Big)^2 ds

    With the plain projection Pθ, its residual r = θ − Pθ, and functions q that are orthonormal
    and span those of the target, the solution is

    .. math:: c = P\theta + \sum_j a_j q_j, \qquad
              \sum_k \Big( \int w\, q_j q_k\, ds \Big) a_k = \int w\, q_j\, r\, ds

    so a weight that is the same at all depths changes nothing. Weights are taken relative to their
    mean over depth, and none is below a thousandth of it.

    Args:
        source: the old basis.
        target: the new one.
        stack: the coefficients, `[K, ...]`.
        weight: one value for each of M cells of equal width, `[M, ...]`; its further dimensions
            are broadcast to those of the stack.

    Example:
        >>> theta, weight = torch.tensor([[1.0], [5.0]]), torch.tensor([[3.0], [1.0]])
        >>> weighted_projection(PiecewiseConstant(2), PiecewiseConstant(1), theta, weight)
        tensor([[2.]])
    """
    matrix = projection(source, target)
    plain = change_basis(matrix, stack)
    cells = PiecewiseConstant(len(weight))
    s, w = quadrature(source, target, cells)
    root = w.sqrt()[:, None]
    q, r = torch.linalg.qr(root * target(s))  # [P, J], [J, J]
    rest = root * (source(s) - target(s) @ matrix)  # [P, K]
    wide = torch.promote_types(stack.dtype, torch.float64)
    old = stack.detach().cpu().to(wide).reshape(source.size, -1)  # [K, n]
    weight = weight.cpu().double().expand(-1, *stack.shape[1:]).reshape(len(weight), -1)  # [M, n]
    mean = weight.mean(0)
    weight = torch.where(mean > 0, weight / mean, 1.0).clamp(min=FLOOR)
    at = cells(s).argmax(-1)
    changes = []
    for start in range(0, old.shape[1], CHUNK):
        part = slice(start, start + CHUNK)
        here = weight[:, part][at]  # [P, n]
        left = torch.einsum("pj,pn,pk->njk", q, here, q).to(wide)
        right = torch.einsum("pj,pn->nj", q.to(wide), here * (rest.to(wide) @ old[:, part]))
        changes.append(torch.linalg.solve(left, right).T)
    change: Tensor = torch.linalg.lstsq(r.to(wide), torch.cat(changes, 1), driver="gelsd").solution
    moved: Tensor = plain + change.reshape(plain.shape).to(plain)
    return moved


def _limit(source: Basis, old: Tensor, target: Basis, new: Tensor) -> Tensor:
    r"""Coefficients whose function nowhere falls below the smallest value of the old one.

    The limiter of Zhang and Shu (2010), per scalar: with the mean m of the old function over
    depth, its minimum, and the minimum of the new one,

    .. math:: \tilde\sigma(s) = m + t\,(\sigma(s) - m), \qquad
              t = \min\Big(1, \frac{m - \min\sigma_{old}}{m - \min\sigma_{new}}\Big)

    Bases that do not contain the constants are left as they are.
    """
    ones = projection(Constant(), target)  # [K, 1]
    s, w = quadrature(source, target)
    if float((target(s) @ ones - 1).abs().max()) > 1e-9:
        return new
    points = _dense_points(source, target)
    old64 = old.detach().cpu().double().reshape(source.size, -1)
    new64 = new.detach().cpu().double().reshape(target.size, -1)
    mean = w @ (source(s) @ old64).clamp(min=0)  # [n]
    floor = (sample(source, points) @ old64).clamp(min=0).amin(0)
    lowest = (sample(target, points) @ new64).amin(0)
    low = lowest < floor
    t = torch.where(low, (mean - floor) / (mean - lowest).clamp(min=1e-300), 1.0)
    centre = ones * mean
    limited = torch.where(low, centre + t * (new64 - centre), new64)
    return limited.reshape(new.shape).to(new)


def _dense_points(*bases: Basis) -> list[Point]:
    """Points on every cell of the bases, from end to end."""
    ends = sorted({b for basis in bases for b in basis.breakpoints})
    inner = 4 * max(basis.degree_on(1 / (len(ends) - 1)) for basis in bases) + 1
    points = []
    for a, b in itertools.pairwise(ends):
        points.append(Point(a, "right"))
        points += [Point(a + (b - a) * i / inner) for i in range(1, inner)]
        points.append(Point(b, "left"))
    return points
