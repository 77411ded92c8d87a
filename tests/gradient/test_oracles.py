"""Gradients beside those of torchdiffeq on the Van der Pol oscillator."""

import pytest
import torch
import torchdiffeq
from torch import nn

import continua as ct

DEPTHS = torch.linspace(0, 1, 100, dtype=torch.float64)


class VanDerPol(nn.Module):
    """q'' = mu (1 - q^2) q' - q, with the stiffness mu to be learned."""

    def __init__(self, stiffness):
        super().__init__()
        self.stiffness = nn.Parameter(torch.tensor(stiffness, dtype=torch.float64))

    def forward(self, z):
        q, p = z.unbind(-1)
        return torch.stack([p, self.stiffness * (1 - q.square()) * p - q], -1)


def starts():
    torch.manual_seed(0)
    return torch.rand(1024, 2, dtype=torch.float64) * 4 - 2


def ours(stiffness, gradient, tolerance, cost=None):
    block = ct.ODEBlock(
        VanDerPol(stiffness),
        ct.Constant(),
        # Every sample is to be within the tolerance, not their mean alone.
        ct.Dopri5(tolerance, tolerance, norm="sample"),
    )
    block.gradient = gradient
    z = starts().requires_grad_()
    solution = block.solve(z, save_at=DEPTHS, running_cost=cost)
    loss = solution.z[-1].sum() if cost is None else solution.cost.sum()
    return torch.autograd.grad(loss, [z, *block.parameters()])


def theirs(stiffness, tolerance, solve):
    module = VanDerPol(stiffness)
    z = starts().requires_grad_()
    options = {"rtol": tolerance, "atol": tolerance, "method": "dopri5"}
    if solve is torchdiffeq.odeint_adjoint:
        options["adjoint_params"] = tuple(module.parameters())
    states = solve(lambda s, z: module(z), z, DEPTHS, **options)
    return torch.autograd.grad(states[-1].sum(), [z, *module.parameters()])


@pytest.mark.parametrize("stiffness", [0.1, 0.5])
@pytest.mark.parametrize("gradient", [ct.Adjoint(), ct.Adjoint("backsolve")], ids=repr)
def test_the_adjoint_of_van_der_pol(gradient, stiffness):
    exact, slope = theirs(stiffness, 1e-9, torchdiffeq.odeint)
    found, found_slope = ours(stiffness, gradient, 1e-4)
    peer, peer_slope = theirs(stiffness, 1e-4, torchdiffeq.odeint_adjoint)
    error = (found - exact).abs().sum(1)
    assert error.max() <= 1e-3
    assert error.mean() <= (peer - exact).abs().sum(1).mean()
    assert abs(found_slope - slope) <= max(1e-3, abs(peer_slope - slope))


@pytest.mark.parametrize("gradient", [ct.Adjoint(), ct.Adjoint("backsolve")], ids=repr)
def test_the_adjoint_of_an_integral_loss(gradient):
    """l = 0.1 q along the way; autograd through a fine solution is the reference."""

    def cost(s, z):
        return 0.1 * z[:, 0]

    exact, slope = ours(0.5, ct.Backprop(), 1e-9, cost)
    found, found_slope = ours(0.5, gradient, 1e-4, cost)
    assert (found - exact).abs().mean() <= 1e-4
    assert abs(found_slope - slope) <= 1e-4 * len(found)


@pytest.mark.parametrize(
    "gradient", [ct.Backprop(), ct.Checkpoint(), ct.Adjoint(), ct.Adjoint("backsolve")], ids=repr
)
@pytest.mark.parametrize("solver", [ct.RK4(steps=60), ct.Dopri5(1e-9, 1e-9)], ids=repr)
@pytest.mark.parametrize("span", [(0.2, 0.9), (0.9, 0.2)], ids=str)
def test_the_ends_of_the_span_by_finite_differences(span, solver, gradient):
    """Comparing gradients with each other cannot find a sign that all of them share."""
    torch.manual_seed(0)
    block = ct.ODEBlock(nn.Linear(2, 2).double(), ct.Legendre(3), solver, gradient)
    with torch.no_grad():
        for parameter in block.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    x = torch.randn(3, 2, dtype=torch.float64)

    def loss(start, end):
        found = block.solve(x, span=(start, end), running_cost=lambda s, z: z.square().sum(1))
        return found.final.square().sum() + found.cost.sin().sum()

    ends = [torch.tensor(s, dtype=torch.float64, requires_grad=True) for s in span]
    by_hand = []
    for moved in ((1e-5, 0.0), (0.0, 1e-5)):
        up, down = (
            loss(*(s + sign * m for s, m in zip(span, moved, strict=True))) for sign in (1, -1)
        )
        by_hand.append(float((up - down).detach()) / 2e-5)
    found = torch.autograd.grad(loss(*ends), ends)
    assert [float(g) for g in found] == pytest.approx(by_hand, rel=1e-4)
