"""What the backward passes that evaluate the field again look at, and that it is enough."""

import pytest
import torch
from torch import nn

import continua as ct
from nets import mlp, scrambled

every_basis = pytest.mark.parametrize(
    "basis",
    [ct.Constant(), ct.PiecewiseConstant(3), ct.PiecewiseLinear(4), ct.Fourier(2), ct.BSpline(5)],
    ids=repr,
)


@every_basis
@pytest.mark.parametrize("solver", [ct.AsynchronousLeapfrog(6), ct.ReversibleHeun(6)], ids=repr)
def test_undone_steps_give_the_gradient_of_the_steps(basis, solver):
    """With states saved at ends of steps and between them; no evaluation is done twice."""
    found = []
    for gradient in (ct.Backprop(), ct.Reversible()):
        torch.manual_seed(0)
        block = scrambled(ct.ODEBlock(mlp(3), basis, solver, gradient=gradient).double())
        z = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
        solution = block.solve(z, save_at=[0.0, 0.1, 0.25, 0.5, 0.77, 1.0])
        (solution.final.sum() + (solution.z * torch.randn_like(solution.z)).sum()).backward()
        found.append([z.grad, *(p.grad for p in block.parameters())])
    for exact, undone in zip(*found, strict=True):
        torch.testing.assert_close(undone, exact)
    assert solution.stats.backward.evaluations <= solution.stats.evaluations


@pytest.mark.parametrize(
    ("basis", "more"),
    [
        (ct.Constant(), 0),
        (ct.PiecewiseConstant(4), 0),
        (ct.PiecewiseLinear(5), 0),
        (ct.Fourier(9), 9),
    ],
    ids=repr,
)
def test_the_adjoint_looks_between_its_stages_only_where_the_basis_asks_for_it(basis, more):
    block = scrambled(ct.ODEBlock(mlp(3), basis, ct.RK4(8), gradient=ct.Adjoint()).double())
    solution = block.solve(torch.ones(2, 3, dtype=torch.float64))
    solution.final.sum().backward()
    assert solution.stats.backward.evaluations == 8 * (4 + more)


class Bias(nn.Module):
    """dz/ds = θ(s)."""

    def __init__(self):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(1))

    def forward(self, z):
        return self.bias.expand_as(z)


@pytest.mark.parametrize(
    "solver",
    [ct.Euler(4), ct.Heun(4), ct.Midpoint(4), ct.RK4(4), ct.RK38(4), ct.Dopri5(), ct.Bosh3()],
    ids=repr,
)
@pytest.mark.parametrize(
    "basis", [ct.Constant(), ct.PiecewiseConstant(4), ct.PiecewiseLinear(5)], ids=repr
)
def test_the_adjoint_integrates_the_functions_themselves(solver, basis):
    """With f = θ(s) the gradient of z(1) is the integral of each function of the basis."""
    block = ct.ODEBlock(Bias(), basis, solver, gradient=ct.Adjoint()).double()
    block(torch.zeros(1, 1, dtype=torch.float64)).sum().backward()
    s = (torch.arange(4000, dtype=torch.float64) + 0.5) / 4000
    torch.testing.assert_close(block.field.bias.grad[:, 0], basis(s).mean(0))


def test_an_adaptive_adjoint_resolves_what_does_not_move_the_state():
    torch.manual_seed(0)
    block = ct.ODEBlock(nn.Sequential(nn.Linear(2, 2), nn.Tanh()), ct.Legendre(4)).double()
    z = torch.randn(3, 2, dtype=torch.float64)
    found = []
    for solver, gradient in ((ct.RK4(64), ct.Backprop()), (ct.Dopri5(1e-8, 1e-8), ct.Adjoint())):
        block.solver, block.gradient = solver, gradient
        block.zero_grad()
        block(z).square().sum().backward()
        found.append(torch.cat([p.grad.flatten() for p in block.parameters()]))
    assert (found[0] - found[1]).norm() < 1e-7 * found[0].norm()


@pytest.mark.parametrize("solver", [ct.ReversibleHeun(2), ct.AsynchronousLeapfrog(2)], ids=repr)
def test_a_state_before_a_jump_does_not_know_what_comes_after(solver):
    block = ct.ODEBlock(Bias(), ct.PiecewiseConstant(2), solver)
    with torch.no_grad():
        block.field.bias[1] = 1.0
        found = block.solve(torch.zeros(1, 1), save_at=[0.25, 0.5, 0.75, 1.0]).z.flatten()
    torch.testing.assert_close(found, torch.tensor([0.0, 0.0, 0.25, 0.5]))
