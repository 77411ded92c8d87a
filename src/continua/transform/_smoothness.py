"""How much the weights of a model change over depth."""

from __future__ import annotations

import functools

import torch
from torch import Tensor, nn

from continua.basis import Basis, quadrature
from continua.field import real

from ._blocks import weight_coefficients


def smoothness(model: nn.Module) -> Tensor:
    r"""How much the weights of all blocks change over depth: zero if they are constant.

    .. math:: \sum_\theta \left( \int \|\theta'(s)\|^2\, ds
              + \sum_{b} \|\theta(b^+) - \theta(b^-)\|^2 \right)

    summed over the weights θ that train, with the integral over the block's span and the sum over
    the depths b at which the basis jumps. Buckets have jumps only,
    :math:`\sum_k \|\theta_{k+1} - \theta_k\|^2`, without a factor for their width: `refine`
    changes neither term. Added to a loss, times a small number such as 0.01, it makes a model that
    `compress` changes less.

    The integral is a Gauss quadrature, exact for piecewise polynomials and accurate to rounding
    otherwise; both terms are a quadratic form of the coefficients, worked out once per basis.

    Args:
        model: any module that contains ODE blocks.

    Example:
        >>> import continua as ct
        >>> block = ct.ODEBlock(nn.Linear(1, 1, bias=False), ct.Polynomial(2), ct.Euler(steps=2))
        >>> _ = nn.init.constant_(block.field.weight, 3.0)  # theta(s) = 3 + 3 s
        >>> round(ct.smoothness(block).item(), 3)
        9.0
    """
    terms: list[Tensor] = []
    for block, basis, stack in weight_coefficients(model):
        if basis.size > 1:
            rows = _change_matrix(basis, abs(block.span[1] - block.span[0]))
            rows = rows.to(stack.device, real(stack.dtype)).to(stack.dtype)
            terms.append((rows @ stack.reshape(basis.size, -1)).abs().square().sum())
    if not terms:
        parameter = next(model.parameters(), torch.zeros(()))
        return torch.zeros((), dtype=real(parameter.dtype), device=parameter.device)
    return torch.stack(terms).sum()


@functools.cache
def _change_matrix(basis: Basis, width: float) -> Tensor:
    """A matrix `[R, K]` in float64; the square of its product with coefficients is their change.

    The basis is stretched over a span of this width.
    """
    s, w = quadrature(basis)
    slopes = (w / width).sqrt()[:, None] * _derivative(basis, s)
    b = torch.tensor(basis.jumps, dtype=torch.float64, device="cpu")
    rows = torch.cat([slopes, basis(b, "right") - basis(b, "left")])
    rows = rows[rows.abs().amax(1) > 0]
    if len(rows) <= basis.size:
        return rows
    # The triangular factor has the same norms on fewer rows.
    factor: Tensor = torch.linalg.qr(rows, mode="r").R
    return factor


def _derivative(basis: Basis, s: Tensor) -> Tensor:
    """The slopes of the functions of a basis, `[Q, K]`."""
    with torch.enable_grad():
        depth = s.clone().requires_grad_()
        values = basis(depth)  # [Q, K]
        columns = [
            torch.autograd.grad(values[:, k].sum(), depth, retain_graph=True)[0]
            for k in range(basis.size)
        ]
    return torch.stack(columns, 1)
