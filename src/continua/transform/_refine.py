"""More basis functions and steps, the same functions."""

from __future__ import annotations

from typing import TypeVar

from torch import nn

from continua._errors import ArgumentError
from continua.field import copied, tensor

from ._blocks import blocks, transformed
from ._elastic import Elastic

M = TypeVar("M", bound=nn.Module)


def refine(model: M, factor: int = 2) -> M:
    r"""A model with more basis functions and more steps, and the same θ(s) and σ(s).

    Every block gets `factor` times as many steps, and each of its bases the larger one that
    contains it (`Basis.refined`). The functions of depth do not change; the output changes by
    the solver's error, which shrinks. Stateful ODE-Nets refine so while training: start with one
    function and one step, double both a few times. The optimizer has to be made anew, since the
    parameters are other tensors.

    Args:
        model: any module that contains ODE blocks; it is not changed. An `Elastic` grows: what it
            was is then its second size, statistics included.
        factor: how many times finer.

    Example:
        >>> import continua as ct
        >>> block = ct.ODEBlock(nn.Linear(2, 2), ct.PiecewiseConstant(1), ct.Euler(steps=1))
        >>> ct.refine(block).field.weight.shape
        torch.Size([2, 2, 2])
    """
    if isinstance(factor, bool) or not isinstance(factor, int) or factor < 1:
        raise ArgumentError(f"factor is a whole number of at least 1, not {factor!r}")
    if isinstance(model, Elastic):
        return model.grown(refine(model.model, factor))  # type: ignore[return-value]
    blocks(model)
    fine = copied(model)
    for block in blocks(fine).values():
        stacks = {}
        for name, basis in block.expansion.bases.items():
            finer, matrix = basis.refined(factor)
            stacks[name] = (finer, transformed(matrix, tensor(block.field, name)))
        block.rebase(stacks, block.solver.refined(factor))
    return fine
