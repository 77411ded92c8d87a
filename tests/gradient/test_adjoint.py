"""The adjoint converges to the gradient of the discrete solution."""

import pytest
import torch
from torch import nn

import continua as ct
from gradient.fields import FIELDS, distance, every_basis, gradients, make


@every_basis
@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("state", ["interpolate", "backsolve"])
def test_the_adjoint_converges_as_tolerances_shrink(basis, field, state):
    block, x, cost = make(field, basis, ct.Dopri8(1e-12, 1e-12))
    for running in (None, cost) if field == "controlled" else (cost,):
        exact, _ = gradients(block, x, running, ct.Backprop())
        errors = []
        # The pair of order 8 where that of order 5 would take hundreds of steps.
        for solver in (ct.Dopri5(1e-3, 1e-3), ct.Dopri5(1e-6, 1e-6), ct.Dopri8(1e-9, 1e-9)):
            loose = ct.compress(block, solver=solver)
            found, _ = gradients(loose, x, running, ct.Adjoint(state))
            errors.append(distance(found, exact))
        assert errors[0] < 0.05
        assert errors[1] < 2e-4
        assert errors[2] < 1e-6


@pytest.mark.parametrize("pair", [ct.Bosh3, ct.Tsit5, ct.Dopri8])
def test_the_adjoint_with_other_pairs(pair):
    block, x, cost = make("controlled", ct.PiecewiseConstant(3), pair(1e-8, 1e-8))
    exact, _ = gradients(block, x, cost, ct.Backprop())
    for state in ("interpolate", "backsolve"):
        found, _ = gradients(block, x, cost, ct.Adjoint(state))
        assert distance(found, exact) < 1e-5


def test_the_adjoint_on_a_fixed_grid_converges_with_the_steps():
    for basis in (ct.PiecewiseConstant(3), ct.Fourier(1)):
        block, x, cost = make("controlled", basis, ct.Dopri5(1e-11, 1e-11))
        exact, _ = gradients(block, x, cost, ct.Backprop())
        errors = []
        for steps in (6, 12, 24):
            grid = ct.compress(block, solver=ct.RK4(steps=steps))
            errors.append(distance(gradients(grid, x, cost, ct.Adjoint())[0], exact))
        assert errors[2] < errors[1] < errors[0] < 0.05
        assert errors[2] < 1e-4


def test_tolerances_of_its_own():
    block, x, cost = make("controlled", ct.Fourier(1), ct.Dopri5(1e-9, 1e-9))
    exact, _ = gradients(block, x, cost, ct.Backprop())
    loose, cheap = gradients(block, x, cost, ct.Adjoint(solver=ct.Dopri5(1e-3, 1e-3)))
    tight, dear = gradients(block, x, cost, ct.Adjoint(solver=ct.Dopri5(1e-9, 1e-9)))
    assert cheap.stats.backward.evaluations < dear.stats.backward.evaluations
    assert distance(tight, exact) < distance(loose, exact)


def test_spectral_gradients_are_integrals_of_the_functional_gradient():
    """SPEC 5.6: dl/dalpha_k = ∫ (dl/dtheta)(s) phi_k(s) ds, theorem 1 against corollary 1."""
    block, x, _ = make("controlled", ct.Legendre(4), ct.Dopri5(1e-10, 1e-10))
    s, w = ct.basis.quadrature(ct.Fourier(8))
    found = ct.functional_gradient(block, x, lambda z: z.square().sum(), s)
    block(x).square().sum().backward()
    phi = ct.Legendre(4)(s)
    for name, p in block.field.named_parameters():
        spectral = torch.einsum("q,qk,q...->k...", w, phi, found.gradients[name])
        assert distance(spectral, p.grad) < 1e-6
    assert found.norm.shape == s.shape


def test_dense_and_controlled_input_gradients_do_not_need_parameters():
    block = ct.ODEBlock(nn.Tanh(), solver=ct.Dopri5(1e-8, 1e-8))
    x = torch.randn(3, 2, dtype=torch.float64, requires_grad=True)
    exact = torch.autograd.grad(block(x).sum(), x)[0]
    for gradient in (ct.Checkpoint(), ct.Adjoint(), ct.Adjoint("backsolve")):
        block.gradient = gradient
        torch.testing.assert_close(torch.autograd.grad(block(x).sum(), x)[0], exact)


def test_further_arguments_get_gradients():
    class Gated(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(3, 3)

        def forward(self, z, gate):
            return gate * torch.tanh(self.linear(z))

    x, gate = torch.randn(2, 4, 3, dtype=torch.float64)
    gate.requires_grad_()
    block = ct.ODEBlock(Gated().double(), ct.Fourier(1), ct.Dopri5(1e-9, 1e-9))
    exact = torch.autograd.grad(block(x, gate).square().sum(), gate)[0]
    for gradient in (ct.Checkpoint(), ct.Adjoint()):
        block.gradient = gradient
        found = torch.autograd.grad(block(x, gate).square().sum(), gate)[0]
        torch.testing.assert_close(found, exact, rtol=1e-6, atol=1e-8)
