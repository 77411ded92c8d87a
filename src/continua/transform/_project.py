"""Gradients of coefficients as steps of functions."""

from __future__ import annotations

import functools

import torch
from torch import Tensor, nn

from continua.basis import Basis, quadrature
from continua.field import real

from ._blocks import change_basis, weight_coefficients


def project_gradient(model: nn.Module, *, mean: bool = False) -> None:
    r"""Replace the gradients of coefficients by those of the functions θ(s), in place.

    With the Gram matrix G of the basis over the block's span,

    .. math:: \frac{\partial \ell}{\partial \theta_k} \;\leftarrow\;
              \sum_j (G^{-1})_{kj}\, \frac{\partial \ell}{\partial \theta_j},
              \qquad G_{jk} = \int \phi_j(s)\, \phi_k(s)\, ds

    these are the coefficients of the functional gradient δℓ/δθ(s), projected in the mean square
    onto the span of the basis. A step of gradient descent then moves θ(s) itself, and depends on
    the functions that the basis spans, not on how it writes them: with K buckets the plain
    gradient of each shrinks like 1/K, and the projected one does not.

    Call it between `backward` and `optimizer.step`, once. It is meant for gradient descent, with
    momentum or without. Adam divides each gradient by its own size, so buckets and Fourier, whose
    Gram matrices are diagonal, train with it as they do without.

    Args:
        model: any module that contains ODE blocks. Parameters outside of blocks, and those without
            a gradient, are left alone.
        mean: True takes the mean over the span in place of the integral. Weights that are
            constant in depth then keep their gradient, whatever the length of the span.

    Theorem 1 and corollary 1 of Dissecting Neural ODEs (Massaroli et al. 2020).

    Example:
        >>> import continua as ct
        >>> block = ct.ODEBlock(nn.Linear(2, 2), ct.PiecewiseConstant(4), ct.Euler(steps=4))
        >>> block(torch.ones(3, 2)).sum().backward()
        >>> plain = block.field.bias.grad.clone()
        >>> project_gradient(block)
        >>> torch.allclose(block.field.bias.grad, 4 * plain)
        True
    """
    for block, basis, stack in weight_coefficients(model):
        if stack.grad is not None:
            inverse = _inverse_gram(basis, torch.finfo(real(stack.grad.dtype)).eps)
            length = 1.0 if mean else abs(block.span[1] - block.span[0])
            stack.grad = change_basis(inverse / length, stack.grad)


@functools.cache
def _inverse_gram(basis: Basis, eps: float) -> Tensor:
    """The inverse of a Gram matrix on [0, 1], `[K, K]` in float64.

    A combination of functions that is smaller than `eps`, the relative rounding of gradients,
    cannot be told from nothing by its gradient, and gets no step.
    """
    s, w = quadrature(basis)
    # Not from the Gram matrix itself, which has the square of the condition.
    _, singular, right = torch.linalg.svd(w.sqrt()[:, None] * basis(s), full_matrices=False)
    large = singular > basis.size * eps * singular[0]
    scaled: Tensor = right[large] / singular[large, None]
    return scaled.T @ scaled
