"""Gradients of functions of depth that have no weight yet."""

import pytest
import torch
from torch import nn

import continua as ct
from continua.basis import FAMILIES

SMOOTH = [
    ct.Fourier(1), ct.Fourier(5), ct.Legendre(8), ct.Chebyshev(12), ct.Polynomial(9),
    ct.GaussianRBF(8), ct.MultiquadricRBF(6),
]  # fmt: skip


@pytest.mark.parametrize("basis", SMOOTH, ids=repr)
def test_a_smooth_state_does_not_hide_a_fast_basis(basis):
    """With θ(s) constant the state is easy, and few steps follow it; the gradient is not."""
    torch.manual_seed(0)
    block = ct.ODEBlock(nn.Linear(2, 2), basis, ct.Dopri5(1e-6, 1e-6))
    report = ct.gradcheck(block, torch.ones(3, 2))
    for row in report.rows:
        if row.refusal is None:
            assert row.difference < (1e-4 if isinstance(row.gradient, ct.Adjoint) else 2e-3), row


def test_inference_takes_the_steps_of_the_state():
    block = ct.ODEBlock(nn.Linear(2, 2), ct.Fourier(5), ct.Dopri5(1e-4, 1e-4))
    x = torch.ones(3, 2)
    with torch.no_grad():
        easy = block.solve(x).stats.steps
    assert easy < block.solve(x).stats.steps


def test_piecewise_bases_need_no_shorter_steps():
    for kind in FAMILIES.values():
        basis = kind.of_size(6)
        smooth = len(basis.breakpoints) == 2 and basis.size > 1
        assert (basis.frequency > 0) == smooth, basis
