"""More basis functions and steps, the same functions."""

from __future__ import annotations

import copy
from typing import Any, TypeVar, overload

from torch import Tensor, nn
from torch.optim import LBFGS, Optimizer

from continua._errors import ArgumentError, ModuleError
from continua._values import whole_number
from continua.field import copied, gathered, is_sharded, tensor

from ._blocks import blocks, change_basis, coefficients, refuse_elastic, tie
from ._elastic import Elastic

M = TypeVar("M", bound=nn.Module)
O = TypeVar("O", bound=Optimizer)


@overload
def refine(model: M, optimizer: int | None = None, factor: int = 2) -> M: ...
@overload
def refine(model: M, optimizer: O, factor: int = 2) -> tuple[M, O]: ...


def refine(model: nn.Module, optimizer: Any = None, factor: int = 2) -> Any:
    r"""A model with more basis functions and more steps, and the same θ(s) and σ(s).

    Every block gets `factor` times as many steps, and each of its bases the larger one that
    contains it (`Basis.refined`). The functions of depth do not change; the output changes by
    the solver's error, which shrinks. Stateful ODE-Nets refine so while training: start with one
    function and one step, double both a few times.

    The parameters are other tensors afterwards. An optimizer that is given comes back as an
    optimizer of the new parameters: its momenta are functions of depth too and are refined by the
    same exact map, and its groups and settings are kept. Create a new learning-rate schedule.

    Args:
        model: any module that contains ODE blocks; it is not changed. Weights that blocks share
            stay shared, which needs the same bases. An `Elastic` grows: what it
            was is then its second size, statistics included.
        optimizer: of the model's parameters; it is not changed. Its state has to be a number or
            of the shape of the parameter, unlike that of Adafactor and LBFGS. May be left out:
            `refine(model, 4)`.
        factor: how many times finer.

    Returns:
        The model, or the model and the optimizer.

    Example:
        >>> import torch, continua as ct
        >>> block = ct.ODEBlock(nn.Linear(2, 2), ct.PiecewiseConstant(1), ct.Euler(steps=1))
        >>> ct.refine(block).field.weight.shape
        torch.Size([2, 2, 2])
        >>> optimizer = torch.optim.SGD(block.parameters(), lr=0.1, momentum=0.9)
        >>> block, optimizer = ct.refine(block, optimizer)
    """
    if not isinstance(optimizer, Optimizer | None):
        optimizer, factor = None, optimizer
    factor = whole_number("factor", factor)
    if isinstance(model, Elastic):
        if optimizer is None:
            return model.grown(refine(model.model, factor))
        fine, optimizer = refine(model.model, optimizer, factor)
        return model.grown(fine), optimizer
    refuse_elastic(model)
    blocks(model)
    if optimizer is not None and is_sharded(model):
        raise ModuleError(
            "the state of an optimizer of a sharded model cannot be carried over; refine the model "
            "alone, shard it, and make a new optimizer"
        )
    model = gathered(model)
    fine = copied(model)
    matrices: dict[int, Tensor] = {}  # by the new parameter
    for block in blocks(fine).values():
        stacks, found = {}, {}
        for name, basis in block.expansion.bases.items():
            finer, matrix = basis.refined(factor)
            stacks[name] = (finer, change_basis(matrix, tensor(block.field, name)))
            found[name] = matrix
        block.rebase(stacks, block.solver.refined(factor))
        matrices |= {id(tensor(block.field, name)): matrix for name, matrix in found.items()}
    tie(coefficients(model), fine)
    return fine if optimizer is None else (fine, _carried(optimizer, model, fine, matrices))


def _carried(
    optimizer: Optimizer, model: nn.Module, fine: nn.Module, matrices: dict[int, Tensor]
) -> Optimizer:
    """The optimizer for the parameters of the refined model."""
    new = dict(fine.named_parameters())
    pairs = {id(p): new[name] for name, p in model.named_parameters()}
    held = [p for group in optimizer.param_groups for p in group["params"]]
    if not any(id(p) in pairs for p in held):
        raise ArgumentError(
            "the optimizer holds no parameter of the model; give the one that trains it"
        )
    if isinstance(optimizer, LBFGS):
        raise _refused(optimizer)
    # The memo of the copy holds the new parameters in the old ones' place.
    made = copy.deepcopy(optimizer, {id(p): pairs.get(id(p), p) for p in held})
    for old in held:
        parameter = pairs.get(id(old))
        if parameter is None or id(parameter) not in matrices or parameter not in made.state:
            continue
        state = made.state[parameter]
        for key, value in state.items():
            if isinstance(value, Tensor) and value.numel() > 1:
                if value.shape != old.shape:
                    raise _refused(optimizer)
                refined = change_basis(matrices[id(parameter)], value)
                # Mean squares, which a spline's map could push below zero.
                state[key] = refined.clamp(min=0) if bool((value >= 0).all()) else refined
    return made


def _refused(optimizer: Optimizer) -> ArgumentError:
    return ArgumentError(
        f"the state of {type(optimizer).__name__} cannot be carried over; refine the model alone "
        "and make a new optimizer"
    )
