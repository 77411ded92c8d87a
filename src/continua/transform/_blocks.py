"""Finding the blocks of a model and changing their coefficients."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from continua._errors import ArgumentError
from continua.block import ODEBlock
from continua.field import contract


def blocks(model: nn.Module) -> dict[str, ODEBlock]:
    """The ODE blocks of a model by name; a block that is the model itself is named ''."""
    if not (found := blocks_if_any(model)):
        raise ArgumentError(
            f"{type(model).__name__} contains no ODEBlock; wrap its residual part in one first"
        )
    return found


def blocks_if_any(model: nn.Module) -> dict[str, ODEBlock]:
    """The same for a model that may have none."""
    if not isinstance(model, nn.Module):
        raise ArgumentError(f"a model is an nn.Module, not {type(model).__name__}")
    return {name: m for name, m in model.named_modules() if isinstance(m, ODEBlock)}


def transformed(matrix: Tensor, stack: Tensor) -> Tensor:
    """Coefficients in another basis: the product in double precision, then rounded once."""
    wide = torch.promote_types(stack.dtype, torch.float64)
    stack = stack.detach()
    if stack.device.type == "mps":  # which has no double precision
        return transformed(matrix, stack.cpu()).to(stack.device)
    return contract(matrix.to(stack.device), stack.to(wide)).to(stack.dtype)
