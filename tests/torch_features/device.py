"""Where these tests run: `CONTINUA_DEVICE=cuda python -m pytest tests/torch_features`."""

import os

import torch

import continua as ct
from nets import mlp, scrambled

DEVICE = os.environ.get("CONTINUA_DEVICE", "cpu")

#: every gradient, with a solver that it can differentiate
KINDS = [
    (ct.Backprop(), ct.RK4(steps=2)),
    (ct.Checkpoint(), ct.RK4(steps=2)),
    (ct.Checkpoint("sqrt"), ct.RK4(steps=2)),
    (ct.Reversible(), ct.ReversibleHeun(steps=2)),
    (ct.Adjoint(), ct.RK4(steps=2)),
    (ct.Adjoint("backsolve"), ct.RK4(steps=2)),
]
EXACT, ADJOINT = KINDS[:4], KINDS[4:]


def made(kind, basis=None, dtype=torch.float64, norm=False):
    """A small block with different weights at every depth."""
    gradient, solver = kind
    torch.manual_seed(0)
    field = mlp(3, norm).to(dtype)
    block = ct.ODEBlock(field, basis or ct.Fourier(1), solver, gradient)
    return scrambled(block).to(DEVICE)


def inputs(batch=5, dtype=torch.float64):
    torch.manual_seed(1)
    return torch.randn(batch, 3, dtype=dtype).to(DEVICE)
