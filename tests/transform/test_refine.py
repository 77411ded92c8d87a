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


# -- the optimizer ---------------------------------------------------------------------------------


def trained(make, family="PiecewiseConstant"):
    torch.manual_seed(0)
    block = ct.ODEBlock(mlp(4).double(), FAMILIES[family].of_size(4), ct.Euler(steps=4))
    model = nn.Sequential(nn.Linear(4, 4).double(), block)
    optimizer = make(model)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(8, 4, dtype=torch.float64)).square().sum().backward()
        optimizer.step()
    return model, optimizer


OPTIMIZERS = [
    lambda m: torch.optim.SGD(m.parameters(), lr=0.01, momentum=0.9),
    lambda m: torch.optim.Adam(m.parameters(), lr=0.01, amsgrad=True),
    lambda m: torch.optim.AdamW(
        [{"params": m[0].parameters(), "weight_decay": 0.3}, {"params": m[1].parameters()}]
    ),
]


@pytest.mark.parametrize("family", REFINABLE)
@pytest.mark.parametrize("make", OPTIMIZERS)
def test_momenta_are_the_same_functions_of_depth(make, family):
    model, optimizer = trained(make, family)
    before = copy.deepcopy(optimizer.state_dict())
    fine, carried = ct.refine(model, optimizer)
    torch.testing.assert_close(optimizer.state_dict(), before, rtol=0, atol=0)
    assert type(carried) is type(optimizer)
    settings = [{k: v for k, v in g.items() if k != "params"} for g in optimizer.param_groups]
    assert [{k: v for k, v in g.items() if k != "params"} for g in carried.param_groups] == settings
    held = {p for group in carried.param_groups for p in group["params"]}
    assert held == set(fine.parameters())
    s = torch.linspace(0.01, 0.99, 7, dtype=torch.float64)
    for name, new in fine[1].field.named_parameters():
        old = model[1].field.get_parameter(name)
        a, b = (m[1].expansion.weights[name] for m in (model, fine))
        for key, value in optimizer.state[old].items():
            found = carried.state[new][key]
            if value.dim() == 0:
                assert torch.equal(found, value)
            elif bool((value < 0).any()):
                here, there = a(s) @ value.flatten(1), b(s) @ found.flatten(1)
                torch.testing.assert_close(there, here)
            else:
                assert found.shape == new.shape
                assert bool((found >= 0).all())
    for old, new in zip(model[0].parameters(), fine[0].parameters(), strict=True):
        torch.testing.assert_close(carried.state[new], optimizer.state[old])


@pytest.mark.parametrize("make", OPTIMIZERS)
def test_training_goes_on(make):
    fine, optimizer = ct.refine(*trained(make), factor=2)
    before = copy.deepcopy(fine.state_dict())
    fine(torch.randn(8, 4, dtype=torch.float64)).sum().backward()
    optimizer.step()
    assert all(not torch.equal(p, before[name]) for name, p in fine.named_parameters())


def test_an_optimizer_of_another_model():
    model, _ = trained(OPTIMIZERS[0])
    with pytest.raises(ct.ArgumentError, match="holds no parameter of the model"):
        ct.refine(model, torch.optim.SGD(nn.Linear(2, 2).parameters()))


def test_an_elastic_model_grows_with_its_optimizer():
    elastic = ct.Elastic(make_pair(4)[0], [4, 2])
    x = torch.randn(3, 4)
    optimizer = torch.optim.SGD(elastic.parameters(), lr=0.1, momentum=0.9)
    elastic(x).sum().backward()
    optimizer.step()
    grown, carried = ct.refine(elastic, optimizer)
    assert grown.sizes == (8, 4, 2)
    grown(x, size=4).sum().backward()
    carried.step()
    held = {p for group in carried.param_groups for p in group["params"]}
    assert held == set(grown.parameters()) == set(carried.state)


@pytest.mark.parametrize("make", [torch.optim.Adafactor, torch.optim.LBFGS])
def test_optimizers_whose_state_is_not_of_the_shape_of_the_parameters(make):
    block = ct.ODEBlock(mlp(4), ct.PiecewiseConstant(2), ct.Euler(steps=2))
    optimizer = make(block.parameters())
    block(torch.randn(3, 4)).sum().backward()
    optimizer.step(lambda: torch.zeros(()))
    with pytest.raises(ct.ArgumentError, match=f"state of {make.__name__} cannot be carried over"):
        ct.refine(block, optimizer)


# -- weights that blocks share ---------------------------------------------------------------------


def shared(first=None, second=None):
    pair = nn.Sequential(
        *(ct.ODEBlock(mlp(4), b or ct.PiecewiseConstant(4)) for b in (first, second))
    )
    pair[1].field[0].weight = pair[0].field[0].weight
    return pair


def test_weights_that_blocks_share_stay_shared():
    model = shared()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model(torch.randn(3, 4)).sum().backward()
    optimizer.step()
    fine, carried = ct.refine(model, optimizer)
    small = ct.compress(model, ct.PiecewiseConstant(2), steps=2)
    for made in (fine, small):
        assert made[0].field[0].weight is made[1].field[0].weight
        assert len(list(made.parameters())) == len(list(model.parameters()))
    assert {p for group in carried.param_groups for p in group["params"]} == set(fine.parameters())
    assert carried.state[fine[1].field[0].weight]["momentum_buffer"].shape[0] == 8


@pytest.mark.parametrize(
    "change",
    [
        lambda: ct.compress(shared(), per_block={"0": {"basis": ct.PiecewiseConstant(2)}}),
        lambda: ct.refine(shared(ct.PiecewiseLinear(4))),
    ],
)
def test_blocks_that_share_weights_need_the_same_basis(change):
    with pytest.raises(ct.ModuleError, match=r"'0.field.0.weight' and '1.field.0.weight' are one"):
        change()


def test_a_fit_refuses_weights_that_blocks_share():
    calibrate = list(torch.randn(8, 4).split(4))
    with pytest.raises(ct.ModuleError, match="a tensor of another block too"):
        ct.compress(shared(), ct.PiecewiseConstant(2), steps=2, method="fit", calibrate=calibrate)
