import copy

import pytest
import torch
from torch import nn

import continua as ct
from continua.basis import FAMILIES
from nets import conv_unit, make_pair, mlp, scrambled

REFINABLE = [name for name in FAMILIES if not name.endswith("RBF")]


@pytest.mark.parametrize("family", REFINABLE)
@pytest.mark.parametrize("factor", [1, 2, 3])
def test_refinement_keeps_every_function_of_depth(family, factor):
    torch.manual_seed(0)
    basis = FAMILIES[family].of_size(4)
    block = scrambled(ct.ODEBlock(conv_unit().double(), basis, ct.Midpoint(steps=2)))
    fine = ct.refine(block, factor)
    assert fine.solver == ct.Midpoint(steps=2 * factor)
    comparison = ct.compare(block, fine)
    assert all(change.error < 1e-12 for change in comparison.tensors)
    for s in (0.0, 0.25, 0.3, 1.0):
        for name, value in block.at(s).state_dict().items():
            torch.testing.assert_close(fine.at(s).state_dict()[name], value, rtol=1e-10, atol=1e-12)


def test_the_output_converges_as_steps_are_added():
    torch.manual_seed(0)
    block = scrambled(ct.ODEBlock(mlp().double(), ct.PiecewiseConstant(2), ct.RK4(steps=2)))
    x = torch.randn(4, 6, dtype=torch.float64)
    exact = ct.refine(block, 32)(x)
    errors = [float((ct.refine(block, f)(x) - exact).detach().norm()) for f in (1, 2, 4)]
    assert errors[1] < errors[0] / 8
    assert errors[2] < errors[1] / 8


def test_every_block_of_a_model_and_nothing_else():
    model = make_pair(4)
    before = copy.deepcopy(model.state_dict())
    fine = ct.refine(model)
    assert fine[0].field[0].weight.shape[0] == 8
    assert fine[2].expansion.weights["0.weight"] == ct.Fourier(4)
    assert fine[0].solver.steps == 8
    assert fine[2].solver.steps == 4
    assert all(torch.equal(model.state_dict()[name], value) for name, value in before.items())
    shared = {p.data_ptr() for p in model.parameters()} & {p.data_ptr() for p in fine.parameters()}
    assert not shared


def test_a_block_used_twice_stays_one():
    block = ct.ODEBlock(mlp(), ct.PiecewiseConstant(2), ct.Euler(steps=2))
    fine = ct.refine(nn.Sequential(block, block))
    assert fine[0] is fine[1]
    assert fine[0].solver.steps == 4


def test_refined_models_train_on():
    model = make_pair(4)
    model(torch.randn(8, 4)).sum().backward()
    fine = ct.refine(model)
    assert all(p.grad is None and p.requires_grad for p in fine.parameters())
    torch.optim.SGD(fine.parameters(), lr=0.1, momentum=0.9)
    fine(torch.randn(8, 4)).sum().backward()
    assert all(p.grad is not None for p in fine.parameters())


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: ct.refine(nn.Linear(2, 2)), "Linear contains no ODEBlock"),
        (lambda: ct.refine(make_pair(3), 0), "at least 1, not 0"),
        (lambda: ct.refine(make_pair(3), 1.5), "not 1.5"),
        (lambda: ct.refine(ct.ODEBlock(mlp(), ct.GaussianRBF(3))), "compress to a BSpline"),
    ],
)
def test_refusals(make, match):
    with pytest.raises(ct.ContinuaError, match=match):
        make()
