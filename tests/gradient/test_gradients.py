"""Every gradient is what its name says."""

import copy
import itertools

import pytest
import torch
from torch import nn

import continua as ct
from continua.solve import Status
from gradient.fields import (
    FIELDS,
    distance,
    every_basis,
    gradients,
    make,
)
from nets import conv_unit, mlp, scrambled

# -- exact ones --------------------------------------------------------------------------------


@every_basis
@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("states", ["all", "sqrt"])
@pytest.mark.parametrize("solver", [ct.Dopri5(1e-5, 1e-5), ct.RK4(steps=9)], ids=repr)
def test_checkpoint_is_backprop(basis, field, states, solver):
    block, x, cost = make(field, basis, solver)
    for running in (None, cost):
        exact, _ = gradients(block, x, running, ct.Backprop())
        again, solution = gradients(block, x, running, ct.Checkpoint(states))
        assert distance(again, exact) < 1e-10
        assert solution.stats.backward.evaluations > 0


@every_basis
@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("method", [ct.ReversibleHeun, ct.AsynchronousLeapfrog])
def test_reversible_is_backprop(basis, field, method):
    block, x, cost = make(field, basis, method(steps=12))
    for running in (None, cost):
        exact, _ = gradients(block, x, running, ct.Backprop())
        again, _ = gradients(block, x, running, ct.Reversible())
        assert distance(again, exact) < 1e-10


@pytest.mark.parametrize("method", [ct.ReversibleHeun, ct.AsynchronousLeapfrog])
@every_basis
def test_reversible_methods_have_order_two(method, basis):
    block, x, _ = make("controlled", basis, ct.Dopri8(1e-12, 1e-12))
    exact = block(x)
    errors = []
    for steps in (48, 96):
        other = ct.compress(block, solver=method(steps=steps))
        errors.append(float((other(x) - exact).detach().norm()))
    assert errors[0] / errors[1] == pytest.approx(4, rel=0.2)


def test_checkpoint_sees_the_same_dropout():
    torch.manual_seed(0)
    field = nn.Sequential(nn.Linear(4, 16), nn.Dropout(0.5), nn.Tanh(), nn.Linear(16, 4)).double()
    x = torch.randn(5, 4, dtype=torch.float64)
    found = []
    for gradient in (ct.Backprop(), ct.Checkpoint(), ct.Checkpoint("sqrt")):
        block = ct.ODEBlock(field, ct.Fourier(1), ct.RK4(steps=6), gradient)
        torch.manual_seed(3)
        block(x).square().sum().backward()
        found.append(torch.cat([p.grad.reshape(-1) for p in block.parameters()]))
    assert distance(found[1], found[0]) < 1e-12
    assert distance(found[2], found[0]) < 1e-12


@pytest.mark.parametrize(
    "gradient", [ct.Checkpoint(), ct.Checkpoint("sqrt"), ct.Adjoint()], ids=repr
)
def test_batch_norm_in_training_is_updated_once(gradient):
    torch.manual_seed(0)
    block = scrambled(ct.ODEBlock(conv_unit().double(), ct.PiecewiseConstant(2), ct.RK4(steps=4)))
    other = copy.deepcopy(block)
    other.gradient = gradient
    x = torch.randn(3, 4, 5, 5, dtype=torch.float64)
    for model in (block, other):
        model(x).square().sum().backward()
    for mine, theirs in zip(other.buffers(), block.buffers(), strict=True):
        torch.testing.assert_close(mine, theirs)
    assert block.field[0].num_batches_tracked == 1
    if isinstance(gradient, ct.Checkpoint):
        for p, q in zip(other.parameters(), block.parameters(), strict=True):
            torch.testing.assert_close(p.grad, q.grad)


def test_second_derivatives_by_backprop():
    block, x, _ = make("controlled", ct.Fourier(1), ct.Dopri5(1e-9, 1e-9))
    x = x[:1].requires_grad_()

    def energy(x):
        return block(x).square().sum()

    assert torch.autograd.gradgradcheck(energy, (x,), atol=1e-4)


# -- oracles and costs -------------------------------------------------------------------------


class Decay(nn.Module):
    def __init__(self):
        super().__init__()
        self.rate = nn.Parameter(torch.tensor([0.8], dtype=torch.float64))

    def forward(self, z):
        return -self.rate * z


@pytest.mark.parametrize(
    "gradient", [ct.Backprop(), ct.Checkpoint(), ct.Adjoint(), ct.Adjoint("backsolve")], ids=repr
)
def test_closed_form_with_a_running_cost(gradient):
    """z = x exp(-k s), ∫ z² ds = x² (1 - exp(-2k)) / 2k, and its derivatives."""
    block = ct.ODEBlock(Decay(), solver=ct.Dopri8(1e-10, 1e-10), gradient=gradient)
    x = torch.tensor([[0.5], [2.0]], dtype=torch.float64, requires_grad=True)
    solution = block.solve(x, running_cost=lambda s, z: z.square().sum(1))
    k, v = torch.tensor(0.8, dtype=torch.float64, requires_grad=True), x.detach().requires_grad_()
    cost = (v.square() * (1 - torch.exp(-2 * k)) / (2 * k)).sum(1)
    torch.testing.assert_close(solution.cost, cost)
    solution.cost.sum().backward()
    cost.sum().backward()
    torch.testing.assert_close(x.grad, v.grad)
    torch.testing.assert_close(block.field.rate.grad.squeeze(), k.grad)


def test_running_cost_of_depth_state_and_input():
    block = ct.ODEBlock(nn.Tanh().double(), solver=ct.RK4(steps=20))
    x = torch.randn(3, 2, dtype=torch.float64)
    with_input = block.solve(x, running_cost=lambda s, z, x: x.sum(1)).cost
    torch.testing.assert_close(with_input, x.sum(1))
    of_depth = block.solve(x, running_cost=lambda s, z: s * torch.ones_like(z[:, 0])).cost
    torch.testing.assert_close(of_depth, torch.full((3,), 0.5, dtype=torch.float64))


def test_gradcheck_tables():
    torch.manual_seed(0)
    for solver in (ct.Dopri5(1e-8, 1e-8), ct.RK4(steps=8), ct.ReversibleHeun(steps=8)):
        block = ct.ODEBlock(mlp(3), ct.PiecewiseConstant(2), solver, init="independent")
        report = ct.gradcheck(block, torch.randn(4, 3))
        applied = [row for row in report.rows if row.refusal is None]
        assert len(applied) >= 2
        for row in applied:
            bound = 1e-2 if isinstance(row.gradient, ct.Adjoint) else 1e-6
            assert row.difference < bound
            assert row.saved > 0
        assert "vs differences" in str(report)
        assert repr(solver) in str(report)


def test_memory_of_reversible_and_backsolve_does_not_grow():
    torch.manual_seed(0)

    def saved(solver, gradient):
        block = ct.ODEBlock(mlp(8), ct.Constant(), solver, gradient)
        kept = {}

        def pack(t):
            kept[t.untyped_storage().data_ptr()] = t.untyped_storage().nbytes()
            return t

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
            block(torch.randn(16, 8, requires_grad=True))
        return sum(kept.values())

    for make_solver, gradient in (
        (ct.ReversibleHeun, ct.Reversible()),
        (lambda n: ct.RK4(steps=n), ct.Adjoint("backsolve")),
    ):
        few, many = saved(make_solver(5), gradient), saved(make_solver(50), gradient)
        assert many <= 1.1 * few
    checkpoint = [saved(ct.RK4(steps=n), ct.Checkpoint("sqrt")) for n in (16, 64, 256)]
    assert checkpoint[2] < 2.4 * checkpoint[1] < 2.4**2 * checkpoint[0]
    backprop = [saved(ct.RK4(steps=n), ct.Backprop()) for n in (5, 50)]
    assert backprop[1] > 5 * backprop[0]


# -- refusals ----------------------------------------------------------------------------------


def refuses(match, gradient, solver, field=None, train=True):
    block = ct.ODEBlock(field or mlp(3), ct.PiecewiseConstant(2), solver, gradient).train(train)
    with pytest.raises(ct.ArgumentError, match=match):
        block(torch.randn(4, 3))


def test_refusals():
    norm = mlp(3, norm=True)
    drop = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5))
    refuses("batch norm in training mode", ct.Adjoint("backsolve"), ct.RK4(steps=2), norm)
    refuses("without noise such as dropout", ct.Adjoint(), ct.RK4(steps=2), drop)
    refuses("with noise such as dropout", ct.Reversible(), ct.ReversibleHeun(steps=2), drop)
    refuses("use Backprop", ct.Checkpoint(), ct.Dopri5(), drop)
    refuses("ReversibleHeun or AsynchronousLeapfrog", ct.Reversible(), ct.RK4(steps=2))
    refuses("Runge-Kutta", ct.Checkpoint(), ct.ReversibleHeun(steps=2))
    refuses("Runge-Kutta", ct.Adjoint(), ct.ReversibleHeun(steps=2))
    block = ct.ODEBlock(norm, solver=ct.RK4(steps=2), gradient=ct.Adjoint("backsolve")).eval()
    block(torch.randn(4, 3)).sum().backward()
    with pytest.raises(ct.ArgumentError, match=r"such as continua\.Backprop"):
        ct.ODEBlock(mlp(3), gradient="adjoint")
    with pytest.raises(ct.ArgumentError, match="'some'"):
        ct.Checkpoint("some")
    with pytest.raises(ct.ArgumentError, match="'exact'"):
        ct.Adjoint("exact")


def test_a_running_cost_of_the_wrong_shape():
    block = ct.ODEBlock(mlp(3), solver=ct.RK4(steps=2))
    x = torch.randn(4, 3)
    for cost in (lambda s, z: z, lambda s, z: z.sum(), lambda s, z: 1.0):
        with pytest.raises(ct.ShapeError, match="one number per sample"):
            block.solve(x, running_cost=cost)


def test_a_gradient_is_a_value():
    methods = [ct.Backprop(), ct.Checkpoint(), ct.Checkpoint("sqrt"), ct.Adjoint(), ct.Reversible()]
    for a, b in itertools.product(methods, methods):
        assert (a == b) == (a is b)
    assert ct.Adjoint() == ct.Adjoint()
    assert "gradient=Checkpoint(states='sqrt')" in repr(
        ct.ODEBlock(mlp(3), gradient=ct.Checkpoint("sqrt"))
    )
    assert Status.SUCCESS.value == "success"


def test_a_field_that_begins_with_group_norm_in_channels_last():
    """Torch crashes on the derivative of group norm by its weights alone in this layout."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.GroupNorm(2, 4), nn.Conv2d(4, 4, 3, padding=1)).double()
    x = torch.randn(2, 4, 6, 6, dtype=torch.float64)
    found = []
    for layout in (torch.contiguous_format, torch.channels_last):
        block = ct.ODEBlock(module, solver=ct.Dopri5(1e-6, 1e-6), gradient=ct.Adjoint())
        block.to(memory_format=layout)
        block(x.to(memory_format=layout)).square().sum().backward()
        found.append([p.grad for p in block.parameters()])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other)
