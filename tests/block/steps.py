"""Blocks of few steps for the tests of solves, and what they give step by step."""

import pytest
import torch
from torch import Tensor, nn

import continua as ct
from nets import scrambled

STEPS = 3
GRADIENTS = [ct.Backprop(), ct.Checkpoint(), ct.Adjoint()]
every_gradient = pytest.mark.parametrize("gradient", GRADIENTS, ids=repr)
with_and_without_grad = pytest.mark.parametrize("grad", [True, False], ids=["grad", "no_grad"])


def made(field: nn.Module, gradient: ct.Gradient | None = None, basis=None) -> ct.ODEBlock:
    torch.manual_seed(0)
    basis = ct.PiecewiseConstant(STEPS) if basis is None else basis
    return scrambled(ct.ODEBlock(field, basis, ct.Euler(steps=STEPS), gradient)).eval()


def inputs(width: int = 4) -> Tensor:
    return torch.randn(2, width, generator=torch.Generator().manual_seed(1))


def by_steps(block: ct.ODEBlock, z: Tensor) -> Tensor:
    """Euler's method on the modules at the depths."""
    for n in range(STEPS):
        z = z + block.at(n / STEPS)(z) / STEPS
    return z.detach()


def tensors(block: ct.ODEBlock) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in block.state_dict().items()}


def same(block: ct.ODEBlock, before: dict[str, Tensor]) -> bool:
    return all(torch.equal(value, before[name]) for name, value in block.state_dict().items())
