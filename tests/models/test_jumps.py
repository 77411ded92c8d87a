"""Stacked flows with jumps."""

import math

import pytest
import torch
from torch import nn

import continua as ct
from nets import scrambled


class Scale(nn.Module):
    def __init__(self, a=1.0):
        super().__init__()
        self.a = nn.Parameter(torch.tensor(a, dtype=torch.float64))

    def forward(self, z):
        return self.a * z


@pytest.mark.parametrize("span", [(0.0, 1.0), (1.0, 0.0), (0.0, 2.0)])
@pytest.mark.parametrize(
    "solver", [ct.Dopri8(1e-10, 1e-10), ct.RK4(steps=300)], ids=lambda s: type(s).__name__
)
def test_flow_and_jump_in_turn(solver, span):
    """z' = a_i z on three pieces, z <- z + g_i z between them."""
    block = ct.ODEBlock(Scale(), ct.PiecewiseConstant(3), solver, span=span)
    with torch.no_grad():
        block.field.a.copy_(torch.tensor([0.5, -0.3, 0.8], dtype=torch.float64))
    model = ct.Jumps(block, [Scale(0.2), Scale(-0.4)])
    x = torch.randn(4, 2, dtype=torch.float64)
    total = (span[1] - span[0]) / 3 * (0.5 - 0.3 + 0.8)
    torch.testing.assert_close(model(x), x * math.exp(total) * 1.2 * 0.6, rtol=1e-7, atol=1e-7)


def test_jumps_at_chosen_depths_get_gradients():
    block = ct.ODEBlock(nn.Linear(2, 2), ct.Fourier(1), ct.RK4(steps=10))
    model = ct.Jumps(block, [nn.Linear(2, 2)], at=[0.3])
    model(torch.randn(3, 2)).sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in model.parameters())


def test_without_jumps_it_is_the_block():
    block = ct.ODEBlock(nn.Linear(2, 2), ct.Fourier(1), ct.RK4(steps=10))
    x = torch.randn(3, 2)
    torch.testing.assert_close(ct.Jumps(block, [])(x), block(x))


@pytest.mark.parametrize(
    ("modules", "at", "message"),
    [
        (1, None, "2 jumps at"),
        (2, [0.6, 0.3], "one after the other"),
        (1, [1.0], "inside the span"),
        (1, [0.2, 0.4], "need as many modules"),
    ],
)
def test_mistakes(modules, at, message):
    block = ct.ODEBlock(nn.Linear(2, 2), ct.PiecewiseConstant(3), ct.RK4(steps=6))
    with pytest.raises(ct.ArgumentError, match=message):
        ct.Jumps(block, [nn.Linear(2, 2) for _ in range(modules)], at)


# -- hypernetworks -----------------------------------------------------------------------------


def hyper():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 22))
    field = ct.Hypernetwork(nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 2)), net)
    return ct.ODEBlock(field.double(), solver=ct.RK4(steps=8))


@pytest.mark.parametrize("gradient", [ct.Backprop(), ct.Checkpoint(), ct.Adjoint()], ids=repr)
def test_a_hypernetwork_trains(gradient):
    block = hyper()
    block.gradient = gradient
    x = torch.randn(3, 2, dtype=torch.float64)
    block(x).sum().backward()
    trained = [p for p in block.parameters() if p.requires_grad]
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in trained)


@pytest.mark.parametrize("basis", [ct.Legendre(8), ct.PiecewiseLinear(40)], ids=repr)
@pytest.mark.parametrize("span", [(0.0, 1.0), (2.0, 0.0)])
def test_a_hypernetwork_in_a_basis(basis, span):
    block = hyper()
    block = ct.ODEBlock(block.at(0.0), solver=ct.RK4(steps=8), span=span).double()
    fitted = ct.fit_hypernetwork(block, basis)
    x = torch.randn(3, 2, dtype=torch.float64)
    torch.testing.assert_close(fitted(x), block(x), rtol=2e-3, atol=2e-3)
    half = ct.compress(fitted, type(basis).of_size(basis.size // 2))
    assert sum(p.numel() for p in half.parameters()) < sum(p.numel() for p in fitted.parameters())


def test_a_hypernetwork_that_does_not_fit():
    with pytest.raises(ct.ArgumentError, match="no parameters"):
        ct.Hypernetwork(nn.Tanh(), nn.Linear(1, 1))
    block = ct.ODEBlock(ct.Hypernetwork(nn.Linear(2, 2), nn.Linear(1, 5)), solver=ct.RK4(steps=2))
    with pytest.raises(ct.ContinuaError, match="gives the 6 weights"):
        block(torch.ones(1, 2))
    with pytest.raises(ct.ArgumentError, match="whose field is a Hypernetwork"):
        ct.fit_hypernetwork(ct.ODEBlock(nn.Linear(2, 2), solver=ct.RK4(steps=2)), ct.Constant())


class Zero(nn.Module):
    def forward(self, z):
        return torch.zeros_like(z)


@pytest.mark.parametrize("span", [(0.0, 1.0), (0.1, 0.7), (1.0, 0.0)])
@pytest.mark.parametrize("buckets", [5, 7])
def test_jumps_by_zero_change_nothing(buckets, span):
    block = ct.ODEBlock(
        nn.Linear(2, 2), ct.PiecewiseConstant(buckets), ct.Euler(buckets), span=span
    )
    block = scrambled(block).double()
    x = torch.randn(3, 2, dtype=torch.float64)
    torch.testing.assert_close(ct.Jumps(block, [Zero() for _ in range(buckets - 1)])(x), block(x))
