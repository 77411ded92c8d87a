"""What a solve cost: `block.stats`, and counting that changes nothing."""

import copy

import pytest
import torch
from torch import nn

import continua as ct
from continua.solve import SOLVERS

WAYS = [
    (ct.RK4(steps=3), ct.Backprop()),
    (ct.Dopri5(1e-4, 1e-4), ct.Backprop()),
    (ct.RK4(steps=3), ct.Checkpoint()),
    (ct.Dopri5(1e-4, 1e-4), ct.Checkpoint("sqrt")),
    (ct.RK4(steps=3), ct.Adjoint()),
    (ct.Dopri5(1e-4, 1e-4), ct.Adjoint()),
    (ct.Dopri8(1e-6, 1e-6), ct.Adjoint("backsolve")),
    (ct.Dopri5(1e-4, 1e-4), ct.Adjoint(solver=ct.RK4(steps=5))),
    (ct.ReversibleHeun(steps=4), ct.Reversible()),
    (ct.AsynchronousLeapfrog(steps=4), ct.Reversible()),
]
every_way = pytest.mark.parametrize(("solver", "gradient"), WAYS, ids=repr)
X = torch.linspace(-1, 1, 8).reshape(4, 2)


class Counting(nn.Module):
    """A field whose calls are counted outside of it."""

    calls = 0

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 2)

    def forward(self, z):
        Counting.calls += 1
        return torch.tanh(3 * self.layer(z))


def made(solver: ct.Solver, gradient: ct.Gradient, basis: ct.Basis | None = None) -> ct.ODEBlock:
    torch.manual_seed(0)
    Counting.calls = 0
    return ct.ODEBlock(Counting(), basis or ct.Constant(), solver, gradient)


@every_way
@pytest.mark.parametrize("how", ["call", "solve"])
@pytest.mark.parametrize("basis", [ct.Constant(), ct.PiecewiseConstant(2)], ids=repr)
def test_forward_and_backward(solver, gradient, how, basis):
    block = made(solver, gradient, basis)
    out = block(X) if how == "call" else block.solve(X).final
    stats, forward = block.stats, Counting.calls
    assert stats.evaluations == forward > 0
    assert stats.steps == len(stats.step_sizes) > 0
    assert sum(stats.step_sizes) == pytest.approx(1)
    assert stats.backward is None
    out.square().sum().backward()
    assert stats.evaluations == forward
    if isinstance(gradient, ct.Backprop):
        assert stats.backward is None
        assert Counting.calls == forward
    else:
        assert type(stats.backward) is type(stats)
        assert stats.backward.evaluations == Counting.calls - forward > 0
    assert block.stats.backward is stats.backward


@pytest.mark.parametrize("name", SOLVERS)
@pytest.mark.parametrize("how", ["enable_grad", "no_grad", "inference_mode"])
def test_every_solver_on_a_grid(name, how):
    solver = SOLVERS[name](steps=5)
    block = made(solver, ct.Backprop(), ct.PiecewiseConstant(5)).eval()
    with getattr(torch, how)():
        for _ in range(3):
            Counting.calls = 0
            block(X)
            assert block.stats.evaluations == Counting.calls
            assert block.stats.steps == 5
    assert not solver.adaptive


@pytest.mark.parametrize("pair", [ct.Bosh3, ct.Dopri5, ct.Tsit5, ct.Dopri8])
def test_rejected_steps_count(pair):
    block = made(pair(1e-6, 1e-6, first_step=1.0), ct.Backprop())
    block(X)
    assert block.stats.rejected > 0
    assert block.stats.evaluations == Counting.calls
    assert block.solver.adaptive


def test_they_are_those_of_the_last_solve():
    block = made(ct.RK4(steps=3), ct.Checkpoint())
    first = block(X)
    before = block.stats
    solution = block.solve(X, span=(0.0, 2.0), solver=ct.Euler(steps=7))
    assert block.stats.steps == 7
    assert block.stats.evaluations == solution.stats.evaluations == 7
    first.sum().backward()
    assert before.backward.evaluations == 12
    assert block.stats.backward is None
    solution.final.sum().backward()
    assert block.stats.backward.evaluations == solution.stats.backward.evaluations == 7


def test_they_are_no_part_of_the_model():
    block = made(ct.RK4(steps=3), ct.Checkpoint())
    names, shown = set(block.state_dict()), repr(block)
    block(X).sum().backward()
    assert set(block.state_dict()) == names
    assert repr(block) == shown
    other = copy.deepcopy(block)
    other.solver = ct.Euler(steps=2)
    other(X)
    assert (block.stats.evaluations, other.stats.evaluations) == (12, 2)


@every_way
def test_counting_counts_the_same_and_changes_nothing(solver, gradient):
    block = made(solver, gradient)
    own, shown, kind = block.gradient, repr(block), type(block.gradient)
    block(X).square().sum().backward()
    wanted = [p.grad.clone() for p in block.parameters()]
    alone = block.stats
    block.zero_grad()
    with ct.count_evaluations(block) as count:
        assert block.gradient is own
        assert type(block.gradient) is kind
        assert block.solver is solver
        assert repr(block) == shown
        Counting.calls = 0
        out = block(X)
        forward = Counting.calls
        out.square().sum().backward()
        assert block.gradient is own
        stats = block.stats
    assert (count.forward, count.backward) == (forward, Counting.calls - forward)
    assert count.forward == stats.evaluations == alone.evaluations
    assert count.backward == (0 if stats.backward is None else stats.backward.evaluations)
    assert (count.backward > 0) == (alone.backward is not None)
    for p, g in zip(block.parameters(), wanted, strict=True):
        assert torch.equal(p.grad, g)
    assert block.gradient is own
    assert repr(block) == shown


def test_counting_while_another_gradient_is_assigned():
    block = made(ct.RK4(steps=3), ct.Backprop())
    with ct.count_evaluations(block) as count:
        block.gradient = ct.Checkpoint()
        block(X).sum().backward()
    assert (count.forward, count.backward) == (12, 12)
    assert block.gradient == ct.Checkpoint()
    block(X)
    assert count.forward == 12
