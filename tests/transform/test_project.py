"""Gradients of coefficients as steps of functions: closed forms, theorem 1, every family."""

import pytest
import torch
from torch import nn

import continua as ct
from continua.basis import FAMILIES, quadrature
from nets import mlp, scrambled


def block_of(basis, span=(0.0, 1.0), solver=None):
    torch.manual_seed(0)
    block = ct.ODEBlock(mlp().double(), basis, solver or ct.Dopri5(1e-8, 1e-8), span=span)
    scrambled(block)
    with torch.no_grad():  # gradients as smooth in depth as the quadratures below need them
        for p in block.parameters():
            p.mul_(0.4)
    return block


def backward(block):
    torch.manual_seed(1)
    x = torch.randn(4, 6, dtype=torch.float64)
    block(x).square().sum().backward()
    return x


def parameters(block):
    return dict(block.field.named_parameters())


@pytest.mark.parametrize("size", [1, 4, 9])
def test_a_bucket_has_its_share_of_the_depth(size):
    """The Gram matrix of K buckets is I/K: the gradient grows by K."""
    block = block_of(ct.PiecewiseConstant(size), solver=ct.RK4(steps=36))
    backward(block)
    before = {name: p.grad.clone() for name, p in parameters(block).items()}
    ct.project_gradient(block)
    for name, p in parameters(block).items():
        torch.testing.assert_close(p.grad, size * before[name])


@pytest.mark.parametrize("span", [(0.0, 1.0), (1.0, -4.0)])
def test_the_mean_over_the_span_does_not_depend_on_its_length(span):
    block = block_of(
        {"*weight": ct.PiecewiseConstant(4), "*": ct.Constant()}, span, ct.RK4(steps=8)
    )
    backward(block)
    before = {name: p.grad.clone() for name, p in parameters(block).items()}
    ct.project_gradient(block, mean=True)
    for name, p in parameters(block).items():
        torch.testing.assert_close(p.grad, (4 if name.endswith("weight") else 1) * before[name])


def test_waves_carry_half_of_a_constant():
    block = block_of(ct.Fourier(2))
    backward(block)
    before = {name: p.grad.clone() for name, p in parameters(block).items()}
    ct.project_gradient(block)
    for name, p in parameters(block).items():
        torch.testing.assert_close(p.grad[0], before[name][0])
        torch.testing.assert_close(p.grad[1:], 2 * before[name][1:])


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("span", [(0.0, 1.0), (-0.5, 1.0)])
def test_a_step_is_the_projection_of_the_functional_gradient(family, span):
    """Theorem 1: theta(s) moves by the projection of dl/dtheta(s) onto the span of the basis."""
    basis = FAMILIES[family].of_size(4) if family != "Constant" else ct.Constant()
    block = block_of(basis, span)
    low, high = span
    # Depths inside the cells of the basis: nothing is read at a jump.
    cells = len(basis.breakpoints) - 1
    u, w = quadrature(basis, ct.Legendre(max(20 // cells, 8)))
    x = backward(block)
    found = ct.functional_gradient(block, x, lambda z: z.square().sum(), low + (high - low) * u)
    block.zero_grad()
    backward(block)
    ct.project_gradient(block)
    rate = 0.1
    before = {name: p.detach().clone() for name, p in parameters(block).items()}
    torch.optim.SGD(block.parameters(), lr=rate).step()
    phi = basis(u)
    for name, p in parameters(block).items():
        moved = torch.tensordot(phi, p.detach() - before[name], 1)
        wanted = found.gradients[name]
        root = w.sqrt()
        best = torch.linalg.lstsq(root[:, None] * phi, root[:, None] * wanted.flatten(1)).solution
        projected = (phi @ best).reshape(wanted.shape)
        error = (moved + rate * projected).norm() / (rate * projected.norm())
        assert error < 1e-5, (name, float(error))


def test_the_direction_of_the_span_does_not_turn_the_step_around():
    block = block_of(ct.Legendre(3), span=(1.0, 0.0))
    x = backward(block)
    ct.project_gradient(block)
    value = block(x).square().sum()
    torch.optim.SGD(block.parameters(), lr=1e-5).step()
    assert block(x).square().sum() < value


@pytest.mark.parametrize("family", ["Polynomial", "Chebyshev", "Legendre"])
def test_bases_of_the_same_span_take_the_same_step(family):
    """Five polynomials of any kind span the same functions, so they move them alike."""
    source, target = ct.Legendre(5), FAMILIES[family](5)
    one = block_of(source)
    other = ct.compress(one, target)
    for block in (one, other):
        backward(block)
        ct.project_gradient(block)
        torch.optim.SGD(block.parameters(), lr=0.1).step()
    comparison = ct.compare(one, other)
    assert all(change.error < 1e-6 for change in comparison.tensors)


def test_single_precision_keeps_to_what_the_gradient_says():
    """Twelve monomials are nearly dependent; rounding must not become a step."""
    s, w = quadrature(ct.Polynomial(12))
    steps = {}
    for dtype, basis in ((torch.float32, ct.Polynomial(12)), (torch.float64, ct.Legendre(12))):
        torch.manual_seed(0)
        block = ct.ODEBlock(nn.Linear(2, 2), basis, ct.RK4(steps=16)).to(dtype)
        block(torch.ones(3, 2, dtype=dtype)).square().sum().backward()
        ct.project_gradient(block)
        steps[dtype] = torch.tensordot(basis(s), block.field.weight.grad.double(), 1).flatten(1)
    exact = steps[torch.float64]
    error = w @ (steps[torch.float32] - exact).square().sum(1)
    assert error.sqrt() < 0.02 * (w @ exact.square().sum(1)).sqrt()


def test_only_blocks_and_only_what_has_a_gradient():
    torch.manual_seed(0)
    block = ct.ODEBlock(mlp(), ct.PiecewiseConstant(2), ct.Euler(steps=2))
    model = nn.Sequential(nn.Linear(6, 6), block, nn.Linear(6, 1))
    ct.project_gradient(model)
    assert all(p.grad is None for p in model.parameters())
    model(torch.randn(5, 6)).sum().backward()
    before = {name: p.grad.clone() for name, p in model.named_parameters()}
    ct.project_gradient(model)
    for name, p in model.named_parameters():
        factor = 2 if name.startswith("1.") else 1
        torch.testing.assert_close(p.grad, factor * before[name])
        assert p.grad.dtype == p.dtype


def test_a_tensor_with_two_names_is_projected_once():
    torch.manual_seed(0)
    first = ct.ODEBlock(nn.Linear(3, 3), ct.PiecewiseConstant(2), ct.Euler(steps=2))
    second = ct.ODEBlock(nn.Linear(3, 3), ct.PiecewiseConstant(2), ct.Euler(steps=2))
    second.field.weight = first.field.weight
    model = nn.Sequential(first, second)
    model(torch.randn(5, 3)).sum().backward()
    before = first.field.weight.grad.clone()
    ct.project_gradient(model)
    torch.testing.assert_close(first.field.weight.grad, 2 * before)


def test_a_model_without_blocks_is_refused():
    with pytest.raises(ct.ArgumentError, match="contains no ODEBlock"):
        ct.project_gradient(nn.Linear(2, 2))
