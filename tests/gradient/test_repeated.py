"""Gradients that evaluate the field again must see what the forward pass saw."""

import copy

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import continua as ct
from nets import conv_unit, mlp, scrambled

EXACT = [
    (ct.RK4(steps=6), ct.Checkpoint()),
    (ct.RK4(steps=6), ct.Checkpoint("sqrt")),
    (ct.ReversibleHeun(steps=6), ct.Reversible()),
    (ct.AsynchronousLeapfrog(steps=6), ct.Reversible()),
]
every_exact = pytest.mark.parametrize(("solver", "gradient"), EXACT, ids=str)


class Gated(ct.Field):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, s, z, x, gate=1.0):
        return torch.tanh(self.linear(z)) * gate + s * x


def both(block, gradient, run, wanted):
    """The gradients of a run under Backprop and under another method."""
    out = []
    for method in (ct.Backprop(), gradient):
        model = copy.deepcopy(block)
        model.gradient = method
        out.append(torch.autograd.grad(run(model), wanted(model)))
    return out


def assert_equal(block, gradient, run, wanted):
    for a, b in zip(*both(block, gradient, run, wanted), strict=True):
        torch.testing.assert_close(b, a, rtol=1e-9, atol=1e-11)


@every_exact
def test_arguments_that_depend_on_each_other(solver, gradient):
    torch.manual_seed(0)
    block = ct.ODEBlock(Gated().double(), ct.PiecewiseConstant(2), solver)
    x = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    w = torch.ones(3, dtype=torch.float64, requires_grad=True)

    def run(model):
        first = w * 1.0
        return model(x, x.mean(1, keepdim=True) * first.sin()).square().sum()

    assert_equal(block, gradient, run, lambda model: [x, w, *model.parameters()])


@every_exact
def test_every_save_counts_once(solver, gradient):
    torch.manual_seed(0)
    block = ct.ODEBlock(Gated().double(), ct.Fourier(1), solver.with_steps(10))
    x = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    for i in range(11):
        assert_equal(
            block,
            gradient,
            lambda m, i=i: m.solve(x, save_at=np.linspace(0, 1, 11)).z[i].square().sum(),
            lambda m: [x],
        )


class Momentum(nn.Module):
    """State that the output depends on, replaced at every call."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.register_buffer("mean", torch.ones(3))

    def forward(self, z):
        out = self.linear(z) * self.mean
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * z.detach().mean(0)
        return out


@every_exact
def test_state_is_read_as_it_was(solver, gradient):
    torch.manual_seed(0)
    block = ct.ODEBlock(Momentum().double(), ct.PiecewiseConstant(2), solver)
    x = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    assert_equal(block, gradient, lambda m: m(x).square().sum(), lambda m: [x, *m.parameters()])


def test_what_changes_in_between_is_refused():
    torch.manual_seed(0)
    x = torch.randn(4, 4, 5, 5)
    for change in (
        lambda block: block.eval(),
        lambda block: torch.optim.SGD(block.parameters(), lr=1.0).step(),
    ):
        block = ct.ODEBlock(conv_unit(), ct.PiecewiseConstant(2), ct.RK4(steps=2), ct.Checkpoint())
        for p in block.parameters():
            p.grad = torch.ones_like(p)
        loss = block(x).sum()
        change(block)
        with pytest.raises(ct.SolveError, match="between the forward pass"):
            loss.backward()


class FunctionalDropout(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, z):
        return F.dropout(torch.tanh(self.linear(z)), 0.5, self.training)


def test_functional_dropout():
    x = torch.randn(4, 3, dtype=torch.float64)
    block = ct.ODEBlock(FunctionalDropout().double(), ct.Fourier(1), ct.RK4(steps=6))

    def run(model):
        torch.manual_seed(5)
        return model(x).square().sum()

    for method in (ct.Checkpoint(), ct.Checkpoint("sqrt")):
        assert_equal(block, method, run, lambda m: list(m.parameters()))
    block.gradient = ct.Adjoint()
    with pytest.raises(ct.ArgumentError, match="noise"):
        run(block)


@every_exact
def test_unfrozen_and_frozen_after_wrapping(solver, gradient):
    field = mlp(3).double()
    field[0].weight.requires_grad_(False)
    block = scrambled(ct.ODEBlock(field, ct.PiecewiseConstant(2), solver))
    block.field[0].weight.requires_grad_(True)
    block.field[2].bias.requires_grad_(False)
    x = torch.randn(4, 3, dtype=torch.float64)

    def wanted(model):
        return [p for p in model.parameters() if p.requires_grad]

    assert_equal(block, gradient, lambda m: m(x).square().sum(), wanted)
    found = ct.functional_gradient(block, x, lambda z: z.sum(), [0.0, 0.5, 1.0])
    assert "2.bias" not in found.gradients


def test_patterns_ties_and_state_bases():
    torch.manual_seed(0)
    field = nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3)).double()
    field[3].weight = field[1].weight
    block = ct.ODEBlock(
        field,
        {"0.*": ct.Constant(), "*.weight": ct.Fourier(1), "*": ct.PiecewiseConstant(3)},
        ct.RK4(steps=6),
        state_basis=ct.PiecewiseLinear(2),
    )
    scrambled(block)
    x = torch.randn(6, 3, dtype=torch.float64, requires_grad=True)
    for method in (ct.Checkpoint(), ct.Checkpoint("sqrt")):
        assert_equal(block, method, lambda m: m(x).square().sum(), lambda m: [x, *m.parameters()])


def test_two_forwards_and_a_graph_kept():
    torch.manual_seed(0)
    block = scrambled(ct.ODEBlock(conv_unit().double(), ct.PiecewiseConstant(2), ct.RK4(steps=2)))
    a, b = torch.randn(2, 3, 4, 5, 5, dtype=torch.float64)
    assert_equal(
        block, ct.Checkpoint(), lambda m: m(a).square().sum() + m(b).sum(),
        lambda m: list(m.parameters()),
    )  # fmt: skip
    block.gradient = ct.Checkpoint()
    loss = block(a).square().sum()
    first = torch.autograd.grad(loss, list(block.parameters()), retain_graph=True)
    second = torch.autograd.grad(loss, list(block.parameters()))
    assert all(torch.equal(p, q) for p, q in zip(first, second, strict=True))


def test_mixed_precision_is_restored():
    torch.manual_seed(0)
    block = ct.ODEBlock(Gated(), ct.PiecewiseConstant(2), ct.RK4(steps=4))
    x = torch.randn(4, 3)

    def run(model):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return model(x).square().sum()

    a, b = both(block, ct.Checkpoint(), run, lambda m: list(m.parameters()))
    for p, q in zip(a, b, strict=True):
        torch.testing.assert_close(q, p, rtol=0.02, atol=0.02)


def test_depth_has_the_precision_of_the_state():
    class Depth(ct.Field):
        def forward(self, s, z, x):
            assert s.dtype == z.dtype
            return s * torch.ones_like(z)

    x = torch.zeros(2, 1, dtype=torch.float64)
    for solver in (ct.RK4(steps=3), ct.Dopri5(1e-8, 1e-8)):
        block = ct.ODEBlock(Depth(), solver=solver)
        for control in (None, torch.tensor([0, 1])):
            final = block.solve(x, control=control, span=(0.0, 1.0)).final
            torch.testing.assert_close(final, torch.full_like(x, 0.5), rtol=0, atol=1e-12)


def test_a_running_cost_with_an_option():
    block = ct.ODEBlock(mlp(3), solver=ct.RK4(steps=2))
    cost = block.solve(
        torch.randn(4, 3), running_cost=lambda s, z, k=2.0: (k * torch.ones_like(z)).sum(1)
    ).cost
    torch.testing.assert_close(cost, torch.full((4,), 6.0))


def test_nothing_is_kept_without_gradients():
    block = ct.ODEBlock(mlp(3), ct.Fourier(1), ct.Dopri8(1e-6, 1e-6), ct.Adjoint())
    x = torch.randn(4, 3)
    with torch.no_grad():
        plain = block.solve(x).stats.evaluations
    assert plain < block.solve(x).stats.evaluations


@pytest.mark.parametrize("gradient", [ct.Checkpoint(), ct.Adjoint(), ct.Reversible()], ids=repr)
def test_weights_that_were_lent_for_a_call_get_the_gradients(gradient):
    field = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Tanh())
    solver = ct.ReversibleHeun(steps=4) if gradient == ct.Reversible() else ct.RK4(steps=4)
    block = ct.ODEBlock(field, ct.PiecewiseConstant(2), solver).double()
    block.gradient = gradient
    x, other = torch.randn(4, 3, dtype=torch.float64), copy.deepcopy(block)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.mul_(1.5)
    lent = {name: p.detach().clone().requires_grad_() for name, p in other.named_parameters()}
    torch.func.functional_call(block, lent, (x,)).square().sum().backward()
    other(x).square().sum().backward()
    for name, parameter in other.named_parameters():
        torch.testing.assert_close(lent[name].grad, parameter.grad, rtol=0, atol=0)
    assert all(parameter.grad is None for parameter in block.parameters())


@pytest.mark.parametrize("gradient", [ct.Checkpoint(), ct.Adjoint()], ids=repr)
def test_an_elastic_model_may_be_called_in_several_sizes_before_the_backward_pass(gradient):
    block = ct.ODEBlock(nn.Linear(3, 3), ct.PiecewiseConstant(4), ct.RK4(steps=4)).double()
    x, found = torch.randn(4, 3, dtype=torch.float64), []
    for block.gradient in (ct.Backprop(), gradient):
        model = ct.Elastic(block, sizes=[4, 2, 1])
        (model(x).sum() + model(x, size=2).square().sum() + model(2 * x, size=1).sum()).backward()
        found.append([p.grad for p in model.parameters()])
    tolerance = 1e-2 if gradient == ct.Adjoint() else 1e-9
    torch.testing.assert_close(found[1], found[0], rtol=tolerance, atol=tolerance)
