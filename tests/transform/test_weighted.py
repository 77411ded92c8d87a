"""Projections weighted by how much each weight matters."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import continua as ct
from nets import conv_unit, mlp, scrambled


class Diagonal(nn.Module):
    """A field that is constant in the state: the output is linear in the weights."""

    def __init__(self, width: int):
        super().__init__()
        self.theta = nn.Parameter(torch.zeros(width))

    def forward(self, z):
        return self.theta.expand_as(z)


def test_fisher_is_uniform_where_all_depths_matter_alike():
    """z(1) = x + ∫θ: each bucket has the same gradient, so nothing changes."""
    block = ct.ODEBlock(Diagonal(3), ct.PiecewiseConstant(4), ct.Euler(steps=4)).double()
    torch.manual_seed(0)
    with torch.no_grad():
        block.field.theta.normal_()
    x = [torch.randn(5, 3, dtype=torch.float64)]
    plain = ct.compress(block, ct.PiecewiseConstant(2))
    weighted = ct.compress(block, ct.PiecewiseConstant(2), calibrate=x, weight="fisher")
    torch.testing.assert_close(weighted.field.theta, plain.field.theta, rtol=1e-14, atol=1e-14)


def test_fisher_in_closed_form():
    """dz/ds = a(s) z in one dimension with Euler: dy/da_k = h y / (1 + h a_k)."""

    class Gain(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Parameter(torch.zeros(()))

        def forward(self, z):
            return self.a * z

    block = ct.ODEBlock(Gain(), ct.PiecewiseConstant(2), ct.Euler(steps=2)).double()
    a = torch.tensor([3.0, -1.0], dtype=torch.float64)
    with torch.no_grad():
        block.field.a.copy_(a)
    x = [torch.randn(1, 1, dtype=torch.float64)]  # one sample: the signs have no cross terms
    small = ct.compress(block, ct.Constant(), calibrate=x, weight="fisher")
    w = (1 + a / 2).pow(-2)
    expected = (w * a).sum() / w.sum()
    torch.testing.assert_close(small.field.a[0], expected, rtol=1e-12, atol=0)


def test_activation_in_closed_form():
    """A linear map sees the state: buckets count by the mean squares of their inputs."""
    block = ct.ODEBlock(nn.Linear(2, 2), ct.PiecewiseConstant(2), ct.Euler(steps=2)).double()
    block = scrambled(block)
    theta, bias = (p.detach() for p in (block.field.weight, block.field.bias))
    x = torch.tensor([[1.0, 2.0], [3.0, -1.0]], dtype=torch.float64)
    after = x + (x @ theta[0].T + bias[0]) / 2
    w = torch.stack([x.square().mean(0), after.square().mean(0)])[:, None]  # [2, 1, in]
    small = ct.compress(block, ct.PiecewiseConstant(1), calibrate=[x], weight="activation")
    expected = (w * theta).sum(0) / w.sum(0)
    torch.testing.assert_close(small.field.weight[0], expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(small.field.bias[0], bias.mean(0), rtol=1e-12, atol=1e-12)


@settings(max_examples=15, deadline=None)
@given(
    source=st.sampled_from([ct.PiecewiseConstant(6), ct.Legendre(4), ct.BSpline(6)]),
    target=st.sampled_from([ct.PiecewiseConstant(3), ct.Legendre(2), ct.Fourier(1)]),
    seed=st.integers(0, 100),
)
@pytest.mark.parametrize("weight", ["fisher", "activation"])
def test_what_fits_is_kept(weight, source, target, seed):
    """A function that the new basis contains is its own best approximation in any weight."""
    torch.manual_seed(seed)
    block = scrambled(ct.ODEBlock(mlp(), ct.Constant(), ct.Euler(steps=3))).double()
    large = ct.ODEBlock(mlp(), source, ct.Euler(steps=3)).double()
    with torch.no_grad():
        for p, q in zip(large.parameters(), block.parameters(), strict=True):
            p.copy_(q.expand_as(p) if source != ct.Legendre(4) else torch.cat([q, 0 * p[1:]]))
    batches = [torch.randn(4, 6, dtype=torch.float64)]
    small = ct.compress(large, target, calibrate=batches, weight=weight)
    assert max(c.error for c in ct.compare(large, small).tensors) < 1e-8


@pytest.mark.parametrize("weight", ["fisher", "activation"])
def test_convolutions_with_groups_and_statistics(weight):
    torch.manual_seed(0)
    grouped = nn.Sequential(conv_unit(), nn.Conv2d(4, 4, 3, padding=1, groups=2))
    block = scrambled(ct.ODEBlock(grouped, ct.PiecewiseConstant(4), ct.RK4(steps=2)))
    batches = [torch.randn(8, 4, 5, 5) for _ in range(2)]
    model = ct.recalibrate(block, batches)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    small = ct.compress(model, ct.PiecewiseConstant(2), calibrate=batches, weight=weight)
    plain = ct.compress(model, ct.PiecewiseConstant(2), calibrate=batches)
    assert not torch.equal(small.field[1].weight, plain.field[1].weight)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())


def test_fisher_is_nearer_where_it_matters():
    """Weights behind a gain that grows with depth matter more there."""
    torch.manual_seed(0)
    block = ct.ODEBlock(mlp(), ct.PiecewiseConstant(8), ct.Euler(steps=8), span=(0.0, 4.0))
    model = scrambled(block).double()
    batches = list(torch.randn(512, 6, dtype=torch.float64).split(8))
    x = torch.randn(256, 6, dtype=torch.float64)
    errors = {}
    for weight in (None, "fisher"):
        small = ct.compress(model, ct.PiecewiseConstant(2), calibrate=batches, weight=weight)
        errors[weight] = ct.compare(model, small, x).outputs.error
    assert errors["fisher"] < errors[None]


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"weight": "hessian", "calibrate": [torch.ones(1, 6)]}, "'activation' or None, not"),
        ({"weight": "fisher"}, "weight='fisher' needs inputs"),
        (
            {"weight": "fisher", "calibrate": [torch.ones(1, 6)], "method": "interpolate"},
            "method is 'interpolate'",
        ),
    ],
)
def test_refusals(arguments, match):
    block = ct.ODEBlock(mlp(), ct.PiecewiseConstant(4), ct.Euler(steps=4))
    with pytest.raises(ct.ArgumentError, match=match):
        ct.compress(block, ct.PiecewiseConstant(2), **arguments)
