import copy

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import continua as ct
from continua.basis import FAMILIES
from nets import conv_unit, make_pair, mlp, scrambled

families = st.sampled_from(sorted(FAMILIES))


def test_half_the_buckets_are_pairwise_means():
    block = scrambled(ct.ODEBlock(conv_unit(), ct.PiecewiseConstant(8), ct.Euler(steps=8)))
    small = ct.compress(block, ct.PiecewiseConstant(4), steps=4)
    for name in block.expansion.bases:
        stack = block.field.state_dict()[name]
        mean = ((stack[0::2].double() + stack[1::2].double()) / 2).float()
        assert torch.equal(small.field.state_dict()[name], mean)
    assert small.solver == ct.Euler(steps=4)


@pytest.mark.filterwarnings("ignore:.*never the others")
@pytest.mark.parametrize("method", ["project", "interpolate"])
@given(source=families, target=families, size=st.integers(2, 6))
def test_any_basis_to_any_basis(method, source, target, size):
    torch.manual_seed(0)
    a, b = FAMILIES[source].of_size(size + 2), FAMILIES[target].of_size(size)
    block = scrambled(ct.ODEBlock(mlp(3, norm=True).double(), a, ct.RK4(steps=2)))
    small = ct.compress(block, b, method=method)
    stack = block.field[1].weight.detach()
    if a.size > 1:
        assert set(small.expansion.bases.values()) == {b}
        mapping = ct.projection if method == "project" else ct.interpolation
        expected = torch.tensordot(mapping(a, b), stack, dims=1)
        torch.testing.assert_close(small.field[1].weight.detach(), expected, rtol=1e-8, atol=1e-8)
    out = small.eval()(torch.randn(4, 3, dtype=torch.float64))
    assert out.shape == (4, 3)


@given(source=families, target=families, size=st.integers(1, 8), seed=st.integers(0, 10))
def test_no_variance_is_negative_after_compression(source, target, size, seed):
    torch.manual_seed(seed)
    a = FAMILIES[source].of_size(9)
    b = FAMILIES[target].of_size(max(size, 2))
    block = ct.ODEBlock(nn.BatchNorm1d(16), a, ct.Euler(steps=9))
    with torch.no_grad():
        block.field.running_var.copy_(torch.randn(a.size, 16).exp())  # log-normal, as in SPEC 1.8
    small = ct.compress(block, b)
    for s in torch.linspace(0, 1, 41).tolist():
        assert (small.at(s).running_var >= 0).all()


def test_a_projected_variance_stays_above_the_least_of_the_source():
    """Without the limiter half of all such projections have a negative node (SPEC 1.8)."""
    torch.manual_seed(0)
    block = ct.ODEBlock(nn.BatchNorm1d(200), ct.PiecewiseConstant(16), ct.Euler(steps=16))
    with torch.no_grad():
        block.field.running_var.copy_(torch.randn(16, 200).exp())
    raw = ct.projection(ct.PiecewiseConstant(16), ct.PiecewiseLinear(8)).float()
    assert ((raw @ block.field.running_var) < 0).any(0).float().mean() > 0.3
    small = ct.compress(block, ct.PiecewiseLinear(8))
    floor = block.field.running_var.amin(0)
    assert (small.field.running_var >= floor * (1 - 1e-5)).all()
    weights = torch.tensor([0.5, *[1.0] * 6, 0.5]) / 7  # the mean of a hat function over depth
    mean = block.field.running_var.mean(0)
    torch.testing.assert_close(weights @ small.field.running_var, mean, rtol=1e-4, atol=0)
    # what needs no limit is the projection itself
    means = raw @ block.field.running_mean
    torch.testing.assert_close(small.field.running_mean, means)


@pytest.mark.filterwarnings("ignore:.*never the others")
def test_solver_and_steps_may_change_alone():
    block = scrambled(ct.ODEBlock(mlp(), ct.PiecewiseConstant(4), ct.RK4(steps=4)))
    short = ct.compress(block, steps=2)
    assert short.solver == ct.RK4(steps=2)
    assert torch.equal(short.field[0].weight, block.field[0].weight)
    assert ct.compress(block, solver=ct.Euler(steps=3)).solver == ct.Euler(steps=3)
    assert ct.compress(block, solver=ct.Euler(steps=3), steps=5).solver == ct.Euler(steps=5)


def test_choices_by_block_and_by_tensor():
    model = make_pair(4)
    small = ct.compress(
        model,
        {"0.*": ct.Legendre(3), "*": ct.Constant()},
        steps={"0": 2, "*": 1},
        solver={"2": ct.Midpoint(steps=9), "*": ct.Euler(steps=1)},
        per_block={"0": {"basis": ct.PiecewiseConstant(2)}},
    )
    assert set(small[0].expansion.weights.values()) == {ct.PiecewiseConstant(2)}
    assert small[2].expansion.weights["0.weight"] == ct.Legendre(3)
    assert small[2].expansion.weights["2.bias"] == ct.Constant()
    assert (small[0].solver, small[2].solver) == (ct.Euler(steps=2), ct.Midpoint(steps=1))
    small(torch.randn(3, 4))


def test_the_first_pattern_for_a_block_wins():
    choices = {"0": {"steps": 2}, "*": {"steps": 1, "basis": ct.Constant()}}
    small = ct.compress(make_pair(4), ct.Legendre(2), per_block=choices)
    assert (small[0].basis, small[0].solver.steps) == (ct.Legendre(2), 2)
    assert (small[2].basis, small[2].solver.steps) == (ct.Constant(), 1)


@pytest.mark.filterwarnings("ignore:.*never the others")
def test_none_for_a_block_leaves_it_as_it_is():
    model = make_pair(4)
    small = ct.compress(model, ct.Constant(), steps=1, per_block={"0": {"basis": None}})
    assert small[0].basis == model[0].basis
    assert small[2].basis == ct.Constant()


def test_patterns_for_tensors_of_one_block():
    """A pattern needs to match in some block, not in all."""
    first = ct.ODEBlock(conv_unit(), ct.PiecewiseConstant(4), ct.Euler(steps=4))
    second = ct.ODEBlock(nn.Tanh(), solver=ct.Euler(steps=4))
    patterns = {"5.weight": ct.Legendre(2), "*": ct.PiecewiseConstant(2)}
    state = {"*mean": ct.Constant(), "*": ct.PiecewiseLinear(2)}
    small = ct.compress(nn.Sequential(first, second), patterns, state_basis=state)
    assert small[0].basis["5.weight"] == ct.Legendre(2)
    assert small[0].basis["2.weight"] == ct.PiecewiseConstant(2)
    assert small[0].state_basis["0.running_mean"] == ct.Constant()
    assert small[0].state_basis["3.running_var"] == ct.PiecewiseLinear(2)


def test_a_tensor_with_two_names():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False)
            self.second.weight = self.first.weight

        def forward(self, z):
            return self.second(self.first(z))

    block = ct.ODEBlock(Tied(), ct.PiecewiseConstant(4), ct.Euler(steps=4))
    names = {"first*": ct.Legendre(2), "second*": ct.Legendre(2)}
    small = ct.compress(block, names)
    assert small.basis == ct.Legendre(2)
    assert small.field.first.weight is small.field.second.weight
    with pytest.raises(ct.ArgumentError, match="same tensor"):
        ct.compress(block, {"first*": ct.Legendre(2), "*": ct.Constant()})


def test_the_old_form_says_the_new_one():
    block = ct.ODEBlock(conv_unit(), ct.PiecewiseConstant(4), ct.Euler(steps=4))
    model = nn.Sequential(block, copy.deepcopy(block))
    basis = {"0": ct.PiecewiseConstant(2), "1": {"2.*": ct.Legendre(2), "*": ct.Legendre(3)}}
    state_basis = {"0": ct.Constant(), "*": ct.Legendre(1)}
    with pytest.warns(DeprecationWarning, match="basis and state_basis are now") as caught:
        old = ct.compress(model, basis, state_basis=state_basis)
    assert caught[0].filename == __file__
    shown = str(caught[0].message).split("per_block=")[1].split(";")[0]
    new = ct.compress(model, per_block=eval(shown, vars(ct)))
    for i in (0, 1):
        assert (old[i].basis, old[i].state_basis) == (new[i].basis, new[i].state_basis)


def test_constant_tensors_stay_constant():
    block = ct.ODEBlock(mlp(), {"0.*": ct.Fourier(3), "*": ct.Constant()}, ct.RK4(steps=2))
    small = ct.compress(block, ct.PiecewiseConstant(4))
    assert small.expansion.weights["0.weight"] == ct.PiecewiseConstant(4)
    assert small.expansion.weights["2.weight"] == ct.Constant()


def test_state_into_a_basis_of_its_own():
    block = scrambled(ct.ODEBlock(conv_unit(), ct.PiecewiseConstant(8), ct.Euler(steps=8)))
    small = ct.compress(block, ct.Fourier(1), state_basis=ct.PiecewiseConstant(2))
    assert set(small.expansion.weights.values()) == {ct.Fourier(1)}
    assert set(small.expansion.state.values()) == {ct.PiecewiseConstant(2)}
    only_state = ct.compress(block, state_basis=ct.PiecewiseConstant(2))
    assert set(only_state.expansion.weights.values()) == {ct.PiecewiseConstant(8)}


def test_the_model_is_not_changed_and_channels_last_stays():
    block = scrambled(ct.ODEBlock(conv_unit(8), ct.PiecewiseConstant(4), ct.Euler(steps=4)))
    block.to(memory_format=torch.channels_last)
    before = copy.deepcopy(block.state_dict())
    small = ct.compress(block, ct.Legendre(2))
    assert all(torch.equal(block.state_dict()[name], value) for name, value in before.items())
    assert small.field[2].weight[0].is_contiguous(memory_format=torch.channels_last)


def test_to_fourier_and_back_loses_nothing_that_fits():
    block = scrambled(ct.ODEBlock(mlp().double(), ct.Fourier(2), ct.RK4(steps=4)))
    there = ct.compress(block, ct.Fourier(4))
    back = ct.compress(there, ct.Fourier(2))
    assert max(change.error for change in ct.compare(block, back).tensors) < 1e-12


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: ct.compress(nn.Tanh(), ct.Constant()), "contains no ODEBlock"),
        (lambda: ct.compress(make_pair(3), ct.Constant(), method="guess"), "not 'guess'"),
        (lambda: ct.compress(make_pair(3), "fourier"), "'fourier', which is not a basis"),
        (
            lambda: ct.compress(make_pair(3), {"stage*": ct.Constant(), "*": ct.Constant()}),
            r"'stage\*' matches no tensor; the tensors are: '0.weight', .*; .* per_block=",
        ),
        (
            lambda: ct.compress(make_pair(3), state_basis={"0.weight": ct.Constant()}),
            "'0.weight' matches no buffer; the buffers are: none",
        ),
        (
            lambda: ct.compress(make_pair(3)[0], per_block={"stage*": {}}),
            r"'stage\*' matches no block; the blocks are: '' \(the model itself\)",
        ),
        (
            lambda: ct.compress(make_pair(3), {"0.*": ct.Constant()}),
            "no pattern matches tensor '2.weight'",
        ),
        (lambda: ct.compress(make_pair(3), steps={"0": 2}), "no pattern matches block '2'"),
        (lambda: ct.compress(make_pair(3), steps=0), "not 0"),
        (lambda: ct.compress(make_pair(3), solver="euler"), "not 'euler'"),
    ],
)
def test_refusals(make, match):
    with pytest.raises(ct.ContinuaError, match=match):
        make()
