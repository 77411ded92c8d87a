"""A block whose inference is tested."""

import torch

import continua as ct
from nets import conv_unit, scrambled

X = torch.linspace(-1, 1, 2 * 4 * 5 * 5).reshape(2, 4, 5, 5)


def made(steps: int = 3, basis: ct.Basis | None = None) -> ct.ODEBlock:
    torch.manual_seed(0)
    basis = ct.PiecewiseConstant(3) if basis is None else basis
    return scrambled(ct.ODEBlock(conv_unit(), basis, ct.Euler(steps=steps))).eval()


def anew(block: ct.ODEBlock) -> torch.Tensor:
    """The same by the way with a graph, which keeps nothing."""
    with torch.enable_grad():
        return block(X.to(block.field[0].weight.dtype)).detach()
