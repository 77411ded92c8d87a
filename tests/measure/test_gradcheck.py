"""Gradients beside differences: what must not be taken for a wrong gradient."""

import pytest
import torch
from torch import nn

import continua as ct


def test_noise_is_the_same_in_every_run():
    torch.manual_seed(0)
    field = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Dropout(0.5))
    block = ct.ODEBlock(field, ct.PiecewiseConstant(2), ct.Euler(steps=2))
    state = torch.get_rng_state()
    report = ct.gradcheck(block, torch.randn(4, 3, generator=torch.Generator().manual_seed(1)))
    assert torch.equal(torch.get_rng_state(), state)
    exact = [row for row in report.rows if isinstance(row.gradient, ct.Backprop | ct.Checkpoint)]
    assert len(exact) == 3
    assert all(row.difference < 1e-6 and row.backprop < 1e-12 for row in exact)


def test_complex_blocks_are_refused():
    block = ct.ODEBlock(nn.Linear(3, 3, dtype=torch.complex64), solver=ct.Euler(steps=2))
    with pytest.raises(ct.ArgumentError, match=r"not torch.complex64"):
        ct.gradcheck(block, torch.randn(4, 3, dtype=torch.complex64))
