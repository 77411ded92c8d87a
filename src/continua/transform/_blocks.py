"""The blocks of a model, their coefficients, and how the model was made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from continua._errors import ArgumentError, ModuleError
from continua.block import ODEBlock
from continua.field import contract, put, tensor

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
    """A change of the blocks of an elastic model would leave its sizes behind."""
    from ._elastic import Elastic  # which is made of verbs that refuse it

    for name, part in model.named_modules() if isinstance(model, nn.Module) else ():
        if isinstance(part, Elastic):
            part_of = f" in the place of {name!r}" if name else ""
            raise ArgumentError(
                f"this is for plain models; give one size of it, elastic.at(size){part_of}"
            )


def blocks_if_any(model: nn.Module) -> dict[str, ODEBlock]:
    """The same for a model that may have none."""
    if not isinstance(model, nn.Module):
        raise ArgumentError(f"a model is an nn.Module, not {type(model).__name__}")
    return {name: m for name, m in model.named_modules() if isinstance(m, ODEBlock)}


def tie(model: nn.Module, changed: nn.Module) -> str | None:
    """Let the blocks of a changed copy share the tensors that those of the model share.

    Returns:
        The name of one that they share.
    """
    known: dict[int, tuple[str, ODEBlock, ODEBlock, str]] = {}
    found = None
    for at, old in blocks(model).items():
        new = blocks(changed)[at]
        for key in old.expansion.bases:
            name = f"{at}.field.{key}"
            here = (name, old, new, key)
            first, first_old, first_new, first_key = known.setdefault(
                id(tensor(old.field, key)), here
            )
            if first == name:
                continue
            found = name
            pairs = [(first_old, old), (first_new, new)]
            if any(a.expansion.bases[first_key] != b.expansion.bases[key] for a, b in pairs):
                raise ModuleError(
                    f"{first!r} and {name!r} are one tensor, which would need "
                    f"{first_new.expansion.bases[first_key]!r} and {new.expansion.bases[key]!r}: "
                    "give both blocks the same basis, or each a tensor of its own"
                )
            put(new.field, new.expansion.names(key), tensor(first_new.field, first_key))
    return found


def transformed(matrix: Tensor, stack: Tensor) -> Tensor:
    """Coefficients in another basis: the product in double precision, then rounded once."""
    return mapped(matrix, stack.detach())


def mapped(matrix: Tensor, stack: Tensor) -> Tensor:
    """The same, differentiable in the coefficients."""
    wide = torch.promote_types(stack.dtype, torch.float64)
    if stack.device.type == "mps":  # which has no double precision
        return mapped(matrix, stack.cpu()).to(stack.device)
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
