"""Counting evaluations, against fields that count their own calls."""

import copy

import pytest
import torch
from torch import nn

import continua as ct
from continua.models import AdaptiveDepth, ContinuousFlow
from nets import Net, make_pair


class Counting(nn.Module):
    """A field that knows how often it was called."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 2)
        self.calls = [0]  # shared by the copy that a block makes

    def __deepcopy__(self, memo):
        other = Counting()
        other.layer, other.calls = copy.deepcopy(self.layer, memo), self.calls
        return other

    def forward(self, z):
        self.calls[0] += 1
        return torch.tanh(3 * self.layer(z))


GRADIENTS = [
    (ct.RK4(steps=3), ct.Backprop()),
    (ct.Dopri5(1e-4, 1e-4), ct.Backprop()),
    (ct.RK4(steps=3), ct.Checkpoint()),
    (ct.Dopri5(1e-4, 1e-4), ct.Checkpoint()),
    (ct.Dopri5(1e-4, 1e-4), ct.Checkpoint("sqrt")),
    (ct.RK4(steps=3), ct.Adjoint()),
    (ct.Dopri5(1e-4, 1e-4), ct.Adjoint()),
    (ct.Dopri8(1e-6, 1e-6), ct.Adjoint()),
    (ct.Dopri5(1e-4, 1e-4), ct.Adjoint("backsolve")),
    (ct.Dopri5(1e-4, 1e-4), ct.Adjoint(solver=ct.RK4(steps=5))),
    *(
        (solver, ct.Reversible())
        for solver in (ct.ReversibleHeun(steps=4), ct.AsynchronousLeapfrog(steps=4))
    ),
]


@pytest.mark.parametrize(("solver", "gradient"), GRADIENTS, ids=repr)
def test_it_counts_the_calls_of_the_field(solver, gradient):
    torch.manual_seed(0)
    field = Counting()
    block = ct.ODEBlock(field, solver=solver, gradient=gradient)
    x = torch.randn(4, 2)
    with ct.count_evaluations(block) as count:
        field.calls[0] = 0
        out = block(x)
        forward = field.calls[0]
        out.square().sum().backward()
    assert (count.forward, count.backward) == (forward, field.calls[0] - forward)
    assert count.forward > 0
    assert (count.backward > 0) == (not isinstance(gradient, ct.Backprop))
    assert count.solves == 1


@pytest.mark.parametrize("kind", [ct.ReversibleHeun, ct.AsynchronousLeapfrog])
def test_reversible_solvers_retrace_every_step(kind):
    block = ct.ODEBlock(Counting(), solver=kind(steps=4), gradient=ct.Reversible())
    with ct.count_evaluations(block) as count:
        block(torch.ones(1, 2)).sum().backward()
    assert count.forward == 5
    assert count.backward == 5  # each step undone and differentiated at once


def test_a_backward_pass_after_the_end_counts():
    block = ct.ODEBlock(Counting(), solver=ct.Dopri5(1e-4, 1e-4), gradient=ct.Adjoint())
    with ct.count_evaluations(block) as count:
        out = block(torch.ones(1, 2))
    assert count.backward == 0
    out.sum().backward()
    assert count.backward > 0


def test_it_agrees_with_the_statistics_of_a_solve():
    block = ct.ODEBlock(Counting(), solver=ct.Dopri5(1e-5, 1e-5), gradient=ct.Adjoint())
    with ct.count_evaluations(block) as count:
        solution = block.solve(torch.ones(3, 2), save_at=[0.2, 1.0], span=(0.0, 2.0))
        solution.final.sum().backward()
    assert count.forward == solution.stats.evaluations
    assert count.backward == solution.stats.backward.evaluations


@pytest.mark.parametrize("gradient", [ct.Backprop(), ct.Adjoint(), ct.Checkpoint()], ids=repr)
def test_it_changes_nothing(gradient):
    torch.manual_seed(0)
    block = ct.ODEBlock(Counting(), solver=ct.Dopri5(1e-4, 1e-4), gradient=gradient)
    own, shown, x = block.gradient, repr(block), torch.randn(4, 2)
    found = []
    for counted in (False, True):
        block.zero_grad()
        if counted:
            with ct.count_evaluations(block):
                block(x).square().sum().backward()
        else:
            block(x).square().sum().backward()
        found.append(block.field.layer.weight.grad.clone())
    assert torch.equal(*found)
    assert block.gradient is own
    assert repr(block) == shown


def test_blocks_are_counted_together():
    model = make_pair(4)  # Euler with 4 steps, RK4 with 2
    with ct.count_evaluations(model) as count, torch.no_grad():
        model(torch.ones(1, 4))
        model(torch.ones(1, 4))
    assert (count.forward, count.backward, count.solves) == (24, 0, 4)
    assert repr(count) == "Evaluations(forward=24, backward=0)"


def test_counts_inside_each_other():
    model = make_pair(4)
    with ct.count_evaluations(model) as outer:
        model(torch.ones(1, 4))
        with ct.count_evaluations(model[0]) as inner:
            model(torch.ones(1, 4))
        model(torch.ones(1, 4))
    assert (outer.forward, inner.forward) == (36, 4)


def test_one_of_two_models_with_the_same_gradient():
    gradient = ct.Checkpoint()
    one, other = (ct.ODEBlock(nn.Linear(2, 2), gradient=gradient) for _ in range(2))
    with ct.count_evaluations(one) as count:
        other(torch.ones(1, 2))
    assert count.forward == 0


def test_modules_that_solve_with_a_block_of_their_own():
    block = ct.ODEBlock(nn.Linear(2, 2), solver=ct.RK4(steps=2), gradient=ct.Adjoint())
    deep = AdaptiveDepth(block, nn.Linear(2, 1))
    with ct.count_evaluations(deep) as count:
        deep(torch.ones(3, 2)).sum().backward()
    assert count.forward == 8
    assert count.backward > 0
    prior = torch.distributions.Independent(
        torch.distributions.Normal(torch.zeros(2), torch.ones(2)), 1
    )
    flow = ContinuousFlow(nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 2)), prior)
    with ct.count_evaluations(flow) as count:
        flow.log_prob(torch.ones(3, 2))
    assert count.forward > 0


def test_what_is_copied_or_saved_meanwhile_is_as_before(tmp_path):
    model = ct.build(Net, width=6)
    model.block.gradient = ct.Adjoint(solver=ct.RK4(steps=3))
    with ct.count_evaluations(model) as count:
        twin, fine = copy.deepcopy(model), ct.refine(model)
        again = ct.load(ct.save(model, tmp_path / "model"), factory=Net)
        twin(torch.ones(2, 3)), fine(torch.ones(2, 3))
    assert count.forward == 0
    for other in (twin, fine, again):
        assert other.block.gradient == ct.Adjoint(solver=ct.RK4(steps=3))


def test_an_error_inside_leaves_the_model_as_it_was():
    block = ct.ODEBlock(nn.Linear(2, 2), gradient=ct.Adjoint())
    with pytest.raises(ct.ShapeError), ct.count_evaluations(block):
        block(torch.ones(1, 3))
    assert type(block.gradient) is ct.Adjoint


def test_a_gradient_that_is_assigned_meanwhile_stays():
    block = ct.ODEBlock(nn.Linear(2, 2))
    with ct.count_evaluations(block):
        block.gradient = ct.Checkpoint()
    assert block.gradient == ct.Checkpoint()


def test_without_blocks_there_is_nothing_to_count():
    model = nn.Linear(2, 2)
    with ct.count_evaluations(model) as count:
        model(torch.ones(1, 2))
    assert (count.forward, count.backward) == (0, 0)


def test_only_a_module_has_fields():
    with (
        pytest.raises(ct.ArgumentError, match="not function"),
        ct.count_evaluations(lambda x: x),
    ):
        pass
