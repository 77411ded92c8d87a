"""The change of weights over depth, against closed forms."""

import math

import pytest
import torch
from torch import nn

import continua as ct
from continua.basis import FAMILIES
from nets import Net, mlp, scrambled


def block(basis: ct.Basis, span=(0.0, 1.0)) -> ct.ODEBlock:
    torch.manual_seed(0)
    made = ct.ODEBlock(nn.Linear(3, 2, bias=False), basis, ct.Euler(steps=2), span=span)
    return scrambled(made.double())


def weight(made: ct.ODEBlock) -> torch.Tensor:
    return made.field.weight.detach().flatten(1)


def test_buckets_have_jumps():
    made = block(ct.PiecewiseConstant(5), span=(0.0, 3.0))
    expected = weight(made).diff(dim=0).square().sum()
    torch.testing.assert_close(ct.smoothness(made).detach(), expected, rtol=1e-13, atol=0)


def test_lines_have_slopes():
    made = block(ct.PiecewiseLinear(5), span=(0.0, 3.0))
    expected = 4 / 3 * weight(made).diff(dim=0).square().sum()  # cells of width 3/4
    torch.testing.assert_close(ct.smoothness(made).detach(), expected, rtol=1e-13, atol=0)


def test_polynomials():
    made = block(ct.Polynomial(5))
    n = torch.arange(5, dtype=torch.float64)
    form = n[:, None] * n / (n[:, None] + n - 1)  # the integral of n s^(n-1) m s^(m-1)
    form[0, :] = form[:, 0] = 0
    c = weight(made)
    expected = torch.einsum("jn,jk,kn->", c, form, c)
    torch.testing.assert_close(ct.smoothness(made).detach(), expected, rtol=1e-12, atol=0)


def test_fourier():
    made = block(ct.Fourier(3))
    order = torch.tensor([0, 1, 1, 2, 2, 3, 3], dtype=torch.float64)
    expected = ((2 * math.pi * order) ** 2 / 2 @ weight(made).square()).sum()
    torch.testing.assert_close(ct.smoothness(made).detach(), expected, rtol=1e-12, atol=0)


def test_lines_with_jumps_have_both():
    made = block(ct.DiscontinuousLinear(4))
    left, right = made.at(0.5, "left").weight, made.at(0.5, "right").weight
    slopes = [
        (left - made.at(0.0).weight) / 0.5,
        (made.at(1.0, "left").weight - right) / 0.5,
    ]
    expected = 0.5 * sum(slope.square().sum() for slope in slopes) + (right - left).square().sum()
    torch.testing.assert_close(ct.smoothness(made).detach(), expected.detach(), rtol=1e-12, atol=0)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_basis_by_differences(family):
    basis = FAMILIES[family].of_size(4)
    made = block(basis)
    s = torch.linspace(0, 1, 20_001, dtype=torch.float64)
    theta = basis(s) @ weight(made)
    inside = torch.ones(20_000, dtype=torch.float64)
    jumps = 0.0
    for b in basis.jumps:
        inside[round(b * 20_000) - 1] = 0
        at = torch.tensor(b, dtype=torch.float64)
        jumps += ((basis(at, "right") - basis(at, "left")) @ weight(made)).square().sum()
    expected = (inside @ theta.diff(dim=0).square()).sum() * 20_000 + jumps
    torch.testing.assert_close(
        ct.smoothness(made).detach(),
        torch.as_tensor(expected, dtype=torch.float64),
        rtol=1e-3,
        atol=1e-12,
    )


def test_refinement_changes_nothing_and_constants_have_none():
    made = block(ct.PiecewiseLinear(3), span=(0.0, 2.0))
    torch.testing.assert_close(ct.smoothness(ct.refine(made)), ct.smoothness(made))
    buckets = block(ct.PiecewiseConstant(3))
    torch.testing.assert_close(ct.smoothness(ct.refine(buckets)), ct.smoothness(buckets))
    fresh = ct.ODEBlock(mlp(), ct.Legendre(4), ct.Euler(steps=2))
    assert ct.smoothness(fresh).item() == pytest.approx(0, abs=1e-12)
    assert ct.smoothness(ct.ODEBlock(mlp(), ct.Constant())).item() == 0


def test_it_is_differentiable_and_needs_blocks():
    model = Net()
    scrambled(model.block)
    before = ct.smoothness(model)
    before.backward()
    with torch.no_grad():
        for p in model.block.parameters():
            p -= 0.1 * p.grad
    assert ct.smoothness(model) < before
    with pytest.raises(ct.ArgumentError, match="no ODEBlock"):
        ct.smoothness(nn.Linear(2, 2))
