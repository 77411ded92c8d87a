"""The blocks of a model, their coefficients, and how the model was made."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from continua._errors import ArgumentError, ModuleError
from continua.basis import Basis, PiecewiseConstant
from continua.block import ODEBlock
from continua.field import Expansion, contract, put, tensor
from continua.solve import Euler

#: the attribute of a model that holds its factory and arguments
RECIPE = "_continua_recipe"


def blocks(model: nn.Module) -> dict[str, ODEBlock]:
    """The ODE blocks of a model by name; a block that is the model itself is named ''."""
    if not (found := blocks_if_any(model)):
        raise ArgumentError(
            f"{type(model).__name__} contains no ODEBlock; wrap its residual part in "
            "one first, or call continua.convert(model) if it has a stack of like layers"
        )
    return found


def refuse_elastic(model: object) -> None:
    """Refuse an elastic model, whose other sizes would not follow a change of its blocks."""
    from ._elastic import Elastic  # it imports this module

    for name, part in model.named_modules() if isinstance(model, nn.Module) else ():
        if isinstance(part, Elastic):
            part_of = f" in the place of {name!r}" if name else ""
            raise ArgumentError(
                f"this is for plain models; give one size of it, elastic.at(size){part_of}"
            )


def blocks_if_any(model: nn.Module) -> dict[str, ODEBlock]:
    """The ODE blocks of a model by name, of which there may be none."""
    if not isinstance(model, nn.Module):
        raise ArgumentError(f"a model is an nn.Module, not {type(model).__name__}")
    return {name: m for name, m in model.named_modules() if isinstance(m, ODEBlock)}


def new_bases(
    expansion: Expansion, old: Mapping[str, Basis], new: Callable[[Basis], Basis]
) -> dict[str, Basis]:
    """New bases for what varies with depth, under all names of each tensor."""
    return {
        name: new(basis)
        for first, basis in old.items()
        if basis.size > 1
        for name in expansion.names(first)
    }


#: the bases and coefficients of blocks, by the names of block and tensor
Coefficients = dict[tuple[str, str], tuple[Basis, Tensor]]


def coefficients(model: nn.Module) -> Coefficients:
    """The bases and coefficients of all blocks of a model."""
    return {
        (name, key): (basis, tensor(block.field, key))
        for name, block in blocks_if_any(model).items()
        for key, basis in block.expansion.bases.items()
    }


def tie(before: Coefficients, model: nn.Module) -> str | None:
    """Let blocks whose coefficients were replaced share those that they shared before.

    Returns:
        The name of a shared tensor, if there is one.
    """
    after, first, shared = coefficients(model), dict[int, tuple[str, str]](), None
    for place, (basis, old) in before.items():
        other = first.setdefault(id(old), place)
        if other == place:
            continue
        shared, known = (f"{name}.field.{key}" for name, key in (place, other))
        if before[other][0] != basis or after[other][0] != after[place][0]:
            raise ModuleError(
                f"{known!r} and {shared!r} are one tensor, which would need {after[other][0]!r} "
                f"and {after[place][0]!r}: give both blocks the same basis, or each a tensor of "
                "its own"
            )
        block = blocks(model)[place[0]]
        put(block.field, block.expansion.names(place[1]), after[other][1])
    return shared


def weight_coefficients(model: nn.Module) -> list[tuple[ODEBlock, Basis, Tensor]]:
    """The coefficients of the weights of all blocks, shared ones once, with block and basis."""
    found: dict[int, tuple[ODEBlock, Basis, Tensor]] = {}
    for block in blocks(model).values():
        for name, basis in block.expansion.weights.items():
            stack = tensor(block.field, name)
            found.setdefault(id(stack), (block, basis, stack))
    return list(found.values())


def layer_count(block: ODEBlock) -> int | None:
    """The number of layers of a block as `convert` makes it; None for any other block."""
    steps, bases = block.solver.steps, block.expansion.bases.values()
    if not isinstance(block.solver, Euler) or block.span != (0.0, float(steps or 0)):
        return None
    return steps if {b for b in bases if b.size > 1} == {PiecewiseConstant(steps or 1)} else None


def step_ends(block: ODEBlock) -> list[float]:
    """The ends of a block's steps; of a solver that chooses its own, the end of the span."""
    start, end = block.span
    n = block.solver.steps or 1
    return [start + (end - start) * i / n for i in range(1, n + 1)]


def change_basis(matrix: Tensor, stack: Tensor) -> Tensor:
    """Coefficients in another basis: the product in double precision, rounded once."""
    wide = torch.promote_types(stack.dtype, torch.float64)
    if stack.device.type == "mps":  # which has no double precision
        return change_basis(matrix, stack.cpu()).to(stack.device)
    return contract(matrix.to(stack.device), stack.to(wide)).to(stack.dtype)


class Recipe(NamedTuple):
    """The call that made a model: a factory, its name and its arguments ready for JSON."""

    factory: Callable[..., nn.Module]
    name: str
    arguments: dict[str, Any]


def recipe_of(model: nn.Module) -> Recipe | None:
    """The call that made the model, or None if not known."""
    return getattr(model, RECIPE, None)


def set_recipe(model: nn.Module, recipe: Recipe | None) -> None:
    """Store how the model was made; copies of the model keep it. None removes it."""
    if recipe is None:
        vars(model).pop(RECIPE, None)
    else:
        setattr(model, RECIPE, recipe)
