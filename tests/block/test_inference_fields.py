"""Solves without a graph, of fields that fail, write to their state or change."""

import copy

import pytest
import torch
from torch import nn

import continua as ct
from block.inference import X, anew, made
from nets import conv_unit, scrambled


class Picky(nn.Module):
    def forward(self, z):
        if not z.isfinite().all():
            raise ValueError("picky")
        return z


@pytest.mark.parametrize("field", [conv_unit(), Picky()], ids=["norms", "one that refuses"])
@pytest.mark.parametrize("calls_before", [0, 1])
def test_values_that_are_not_finite_are_named(field, calls_before, without_graph):
    block = ct.ODEBlock(field, ct.PiecewiseConstant(3), ct.Euler(steps=3)).eval()
    bad = X.clone()
    bad[1, 0, 0, 0] = float("nan")
    with without_graph():
        for _ in range(calls_before):
            block(X)
        with pytest.raises(ct.ArgumentError, match="1 NaN of 200 values, first in sample 1"):
            block(bad)
        assert block(X).isfinite().all()


def test_a_result_that_is_not_finite_is_refused(without_graph):
    block = made()
    with torch.no_grad():
        block.field[2].weight[1] = float("inf")
    with without_graph(), pytest.raises(ct.SolveError, match="not finite"):
        block(X)


class Counting(nn.Module):
    """Writes to its state whenever it is called, in evaluation too."""

    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x):
        self.calls += 1
        return 0.1 * self.calls * x


def test_a_module_that_writes_in_evaluation_leaves_no_trace(without_graph):
    field = nn.Sequential(nn.BatchNorm1d(4), Counting())
    block = ct.ODEBlock(field, ct.PiecewiseConstant(3), ct.Euler(steps=3)).eval()
    x = torch.randn(2, 4)
    with without_graph():
        outputs = [block(x) for _ in range(2)]
    assert torch.equal(*outputs)
    assert not block.field[1].calls.any()


class Meddling(nn.Module):
    """Trains a norm that is in evaluation, behind its back."""

    def __init__(self):
        super().__init__()
        self.norm, self.linear = nn.BatchNorm1d(4), nn.Linear(4, 4)

    def forward(self, x):
        norm = self.norm
        return self.linear(
            nn.functional.batch_norm(x, norm.running_mean, norm.running_var, training=True)
        )


@pytest.mark.parametrize("steps", [3, 5])
def test_statistics_that_are_written_to_after_all(steps, without_graph):
    torch.manual_seed(0)
    block = scrambled(
        ct.ODEBlock(Meddling(), ct.PiecewiseConstant(3), ct.Euler(steps=steps))
    ).eval()
    before = {name: value.clone() for name, value in block.state_dict().items()}
    x = torch.randn(5, 4)
    with without_graph():
        outputs = [block(x) for _ in range(2)]
    for name, value in block.state_dict().items():
        assert torch.equal(value, before[name]), name
    for out in outputs:
        torch.testing.assert_close(out.clone(), block(x).detach())


def test_a_field_that_changes_its_ways(without_graph):
    block = ct.ODEBlock(nn.Sequential(nn.ReLU(), nn.Linear(4, 4)), solver=ct.Euler(steps=2)).eval()
    x = torch.randn(5, 4)
    with without_graph():
        block(x)
        block.field[0].inplace = True
        with pytest.raises(ct.ModuleError, match="in place"):
            block(x)
        block.field[0].inplace = False
        block.field[1].register_forward_hook(lambda m, i, o: o.mean(0, keepdim=True))
        with pytest.raises(ct.ShapeError, match="dz/ds must have the shape of z"):
            block(torch.randn(5, 4))


@pytest.mark.parametrize("basis", [ct.PiecewiseConstant(2), ct.Legendre(2)], ids=repr)
def test_a_field_that_writes_to_a_state_that_does_not_tell(basis):
    field = nn.Sequential(nn.ReLU(inplace=True), nn.Linear(4, 4))
    block = ct.ODEBlock(field, basis, ct.Euler(steps=2)).eval()
    with torch.inference_mode(), pytest.raises(ct.ModuleError, match="in place"):
        block(torch.randn(5, 4))


def test_weights_are_not_cached_over_depth(without_graph):
    field = nn.utils.parametrizations.weight_norm(nn.Linear(4, 4))
    block = ct.ODEBlock(field, ct.PiecewiseConstant(2), ct.Euler(steps=2)).eval()
    with without_graph():
        block(torch.randn(5, 4))
        with nn.utils.parametrize.cached(), pytest.raises(ct.ModuleError, match="outside of it"):
            block(torch.randn(5, 4))


def test_one_norm_that_trains_in_a_block_that_does_not(without_graph):
    block = made()
    before = block.field[0].running_mean.clone()
    with without_graph():
        block(X)
    block.field[0].train()
    other = copy.deepcopy(block)
    with without_graph():
        found = block(X)
    torch.testing.assert_close(found.clone(), anew(other))
    assert not torch.equal(block.field[0].running_mean, before)
    torch.testing.assert_close(block.field[0].running_mean, other.field[0].running_mean)


def test_a_second_shape_is_looked_at_like_the_first(without_graph):
    block = made()
    with without_graph():
        block(X)
        assert block(X[:1]).shape == (1, 4, 5, 5)
        with pytest.raises(ct.ShapeError, match=r"fails on a state of shape \[2, 3, 5, 5\]"):
            block(X[:, :3])
        assert block(X).shape == X.shape


def test_both_ways_without_a_graph_may_alternate():
    block = made()
    with torch.inference_mode():
        first = block(X)
    with torch.no_grad():
        second = block(X)
    with torch.inference_mode():
        third = block(X)
    assert torch.equal(first, second)
    assert torch.equal(second, third)


def test_a_copy_stands_on_its_own():
    block = made()
    with torch.no_grad():
        before = block(X)
        other = copy.deepcopy(block)
        for parameter in other.parameters():
            parameter.mul_(0.5)
        assert torch.equal(block(X), before)
        torch.testing.assert_close(other(X), anew(other))


def test_coefficients_are_back_after_a_field_that_fails():
    block = made()
    with torch.no_grad():
        before = block(X)
        with pytest.raises(ct.ShapeError):
            block(torch.ones(2, 3, 5, 5))
        assert torch.equal(block(X), before)
    assert isinstance(block.field[2].weight, nn.Parameter)


@pytest.mark.filterwarnings("ignore")  # torch deprecates its tracer, which people still use
def test_a_traced_block_keeps_its_weights_as_parameters():
    block = made()
    with torch.no_grad():
        block(X)
        traced = torch.jit.trace(block, X)
        for parameter in traced.parameters():
            parameter.mul_(0.9)
        assert torch.equal(traced(X), block(X))  # they share them
    assert {name for name, _ in traced.named_parameters()} == dict(block.named_parameters()).keys()


class Scaled(nn.Module):
    """A field whose only weight is frozen, and so no function of depth."""

    def __init__(self):
        super().__init__()
        self.factor = nn.Parameter(torch.ones(()), requires_grad=False)

    def forward(self, z):
        return self.factor * z


def test_the_precision_of_a_frozen_weight_counts_too(without_graph):
    block = ct.ODEBlock(Scaled(), solver=ct.RK4(2)).eval()
    with without_graph():
        for _ in range(2):
            with pytest.raises(ct.ShapeError, match="float64"):
                block(torch.ones(2, 3, dtype=torch.float64))


def test_tensors_without_memory_are_solved_again_and_again(without_graph):
    block = made().to("meta")
    with without_graph():
        for _ in range(3):
            assert block(X.to("meta")).shape == X.shape
