"""Names that changed, values that do not, and which patterns name what."""

import inspect

import pytest
import torch
from torch import nn

import continua as ct
from continua.basis import FAMILIES
from continua.gradient import GRADIENTS
from continua.solve import SOLVERS
from nets import make_pair

BUCKETS = ct.PiecewiseConstant(2)
VALUES = [
    *(family.of_size(4) for family in FAMILIES.values()),
    *(solver(steps=4) for solver in SOLVERS.values()),
    *(gradient() for gradient in GRADIENTS.values()),
]


# -- values ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SOLVERS)
def test_every_solver_says_whether_it_is_adaptive(name):
    assert SOLVERS[name](steps=4).adaptive is False
    if "rtol" in inspect.signature(SOLVERS[name]).parameters:
        assert SOLVERS[name]().adaptive is True
        assert SOLVERS[name](rtol=1e-3, atol=1e-3).with_steps(2).adaptive is False


@pytest.mark.parametrize("value", [ct.RK4(steps=8), ct.Dopri5(steps=8), ct.Dopri5()], ids=repr)
def test_the_steps_of_a_solver_are_not_assigned(value):
    block = ct.ODEBlock(nn.Linear(2, 2), solver=value)
    with pytest.raises(AttributeError, match=r"block\.solver") as caught:
        block.solver.steps = 4
    assert isinstance(caught.value, ct.ContinuaError)
    assert block.solver == value


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_values_are_frozen(value):
    before, shown = hash(value), repr(value)
    for name in [*value.config(), "anything"]:
        with pytest.raises(AttributeError):
            setattr(value, name, 1)
    assert (hash(value), repr(value)) == (before, shown)


# -- old names ---------------------------------------------------------------------------------


def test_a_path_is_a_signal_now():
    signal = ct.Signal([0.0, 1.0], torch.tensor([[0.0], [2.0]]))
    assert signal(torch.tensor(0.25)).tolist() == [0.5]
    with pytest.warns(DeprecationWarning, match="Signal"):
        old = ct.Path([0.0, 1.0], torch.tensor([[0.0], [2.0]]))
    assert isinstance(old, ct.Signal)
    assert {"Signal", "fit_coefficients", "odeint"} <= set(ct.__all__)
    assert not {"Path", "fit"} & set(ct.__all__)


def test_fit_is_fit_coefficients_now():
    s = torch.linspace(0, 1, 9, dtype=torch.float64)
    found = ct.fit_coefficients(ct.Polynomial(2), s, 1 + 2 * s)
    torch.testing.assert_close(found, torch.tensor([1.0, 2.0], dtype=torch.float64))
    with pytest.warns(DeprecationWarning, match="fit_coefficients"):
        old = ct.fit(ct.Polynomial(2), s, 1 + 2 * s)
    assert torch.equal(old, found)


# -- compress ----------------------------------------------------------------------------------


def bases(block: ct.ODEBlock) -> list[ct.Basis]:
    return list(block.expansion.weights.values())


def test_patterns_of_tensors():
    """As `ODEBlock` takes them, in every block."""
    small = ct.compress(make_pair(3), {"*.weight": ct.Legendre(2), "*": BUCKETS})
    for block in (small[0], small[2]):
        assert bases(block) == [ct.Legendre(2), BUCKETS] * 2
    with pytest.raises(ct.ArgumentError, match=r"'stage\*' matches no"):
        ct.compress(make_pair(3), {"stage*": BUCKETS, "*": BUCKETS})


def test_choices_per_block():
    choices = {
        "0": {"basis": {"0.*": ct.Legendre(3), "*": BUCKETS}, "steps": 2},
        "*": {"basis": ct.Constant(), "solver": ct.Midpoint(steps=5)},
    }
    small = ct.compress(make_pair(3), per_block=choices)
    assert bases(small[0]) == [ct.Legendre(3)] * 2 + [BUCKETS] * 2
    assert small[0].solver == ct.Euler(steps=2)
    assert set(bases(small[2])) == {ct.Constant()}
    assert small[2].solver == ct.Midpoint(steps=5)


def test_a_choice_for_one_block_goes_before_that_for_all():
    small = ct.compress(make_pair(3), BUCKETS, steps=3, per_block={"2": {"steps": 1}})
    assert set(bases(small[0])) == set(bases(small[2])) == {BUCKETS}
    assert (small[0].solver.steps, small[2].solver.steps) == (3, 1)


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"stage*": {"steps": 2}}, r"'stage\*' matches no block"),
        ({"*": {"step": 2}}, "'step'"),
        ({"*": 2}, "2"),
        (BUCKETS, "PiecewiseConstant"),
    ],
)
def test_bad_choices_per_block(choices, message):
    with pytest.raises(ct.ArgumentError, match=message):
        ct.compress(make_pair(3), per_block=choices)


def test_patterns_of_blocks_in_the_old_way():
    model = make_pair(3)
    for old in ({"0": BUCKETS, "2": ct.Constant()}, {"0": {"*": BUCKETS}, "*": ct.Constant()}):
        with pytest.warns(DeprecationWarning, match="per_block"):
            small = ct.compress(model, old)
        assert set(bases(small[0])) == {BUCKETS}
        assert set(bases(small[2])) == {ct.Constant()}
    small = ct.compress(
        model, steps={"0": 2, "*": 1}, solver={"2": ct.RK4(steps=9), "*": ct.Heun(1)}
    )
    assert (small[0].solver, small[2].solver) == (ct.Heun(steps=2), ct.RK4(steps=1))
