"""A size is asked for, and the cuts are chosen."""

import copy
import itertools
import math

import pytest
import torch
from torch import Tensor, nn

import continua as ct
from nets import conv_unit, make_pair, mixed, mlp, scrambled

SIZES = (4, 3, 2, 1)


def net(blocks: int = 3, norm: bool = False, solver: ct.Solver | None = None) -> nn.Sequential:
    """Blocks of different widths, and so of different sizes."""
    torch.manual_seed(0)
    parts: list[nn.Module] = []
    for i in range(blocks):
        used = ct.Euler(steps=4) if solver is None else solver
        block = ct.ODEBlock(mlp(3 + i, norm), ct.PiecewiseConstant(4), used)
        parts += [scrambled(block), nn.Linear(3 + i, 4 + i)]
    return nn.Sequential(*parts).double()


def inputs(*shape: int, n: int = 3) -> list[Tensor]:
    torch.manual_seed(1)
    return [torch.randn(*shape, dtype=torch.float64) for _ in range(n)]


def parameters(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


def chosen(model: nn.Module) -> list[tuple[int, ct.Solver]]:
    found = [m for m in model.modules() if isinstance(m, ct.ODEBlock)]
    return [(max(b.size for b in m.expansion.weights.values()), m.solver) for m in found]


def error(model: nn.Module, small: nn.Module, batches: list[Tensor]) -> float:
    x = torch.cat(batches)
    with torch.no_grad():
        y, other = model.eval()(x), small.eval()(x)
    return float((other - y).square().sum() / y.square().sum())


@pytest.mark.parametrize("budget", [0.9, 0.7, 0.5, 0.4])
def test_the_best_of_all_combinations(budget):
    """The smallest sum of the errors of single cuts, by trying every combination."""
    model, batches = net(), inputs(20, 3)
    names = ["0", "2", "4"]

    def cut(sizes: dict[str, int]) -> nn.Module:
        own = {name: {"basis": ct.PiecewiseConstant(n)} for name, n in sizes.items()}
        return ct.compress(model, per_block=own, calibrate=batches)

    alone = {(b, n): error(model, cut({b: n}), batches) for b in names for n in SIZES}
    allowed = [
        (sum(alone[pair] for pair in zip(names, sizes, strict=True)), sizes)
        for sizes in itertools.product(SIZES, repeat=3)
        if parameters(cut(dict(zip(names, sizes, strict=True)))) <= budget * parameters(model)
    ]
    small = ct.compress(model, budget=budget, calibrate=batches)
    assert tuple(n for n, _ in chosen(small)) == min(allowed)[1]
    assert parameters(small) <= budget * parameters(model)
    assert {solver for _, solver in chosen(small)} == {ct.Euler(steps=4)}


def test_three_of_four_functions():
    """Two evaluations share a bucket, with the mean of theirs; the others keep their own."""
    model, batches = net(1), inputs(20, 3)
    small = ct.compress(model, budget=0.8, calibrate=batches)
    assert chosen(small) == [(3, ct.Euler(steps=4))]
    for name, p in small[0].field.named_parameters():
        old = model[0].field.get_parameter(name)
        torch.testing.assert_close(p, torch.stack([old[:2].mean(0), old[2], old[3]]))
    half = ct.compress(model, ct.PiecewiseConstant(2))
    assert error(model, small, batches) < error(model, half, batches)


@pytest.mark.parametrize(
    "budget",
    [
        {"parameters": 300},
        {"bytes": 0.6},
        {"evaluations": 0.5},
        {"evaluations": 5},
        {"parameters": 0.6, "evaluations": 0.5},
    ],
    ids=str,
)
def test_every_measure(budget):
    batches = inputs(20, 3)
    model = ct.recalibrate(net(2, norm=True), batches)
    before = copy.deepcopy(model.state_dict())
    small = ct.compress(model, budget=budget, calibrate=batches)
    torch.testing.assert_close(model.state_dict(), before, rtol=0, atol=0)
    found = ct.compare(model, small)
    for name, limit in budget.items():
        own = getattr(found.source, name)
        assert getattr(found.target, name) <= (limit * own if limit <= 1 else limit)
    plain = ct.recalibrate(small, batches)  # the statistics are those of these inputs
    assert error(plain, small, batches) < 1e-20


def test_latency():
    """Half the time of one evaluation more than that of nothing leaves fewer evaluations."""
    model = net(1, solver=ct.Euler(steps=16))
    small = ct.compress(model, budget={"latency": 0.7}, calibrate=inputs(64, 3))
    (_, solver), *_ = chosen(small)
    assert solver.evaluations((0.0, 1.0)) < 16


def test_the_whole_budget_changes_nothing():
    model, batches = net(), inputs(20, 3)
    small = ct.compress(model, budget=1.0, calibrate=batches)
    assert error(model, small, batches) == 0
    assert chosen(small) == chosen(model)


def test_a_weight_that_is_constant_costs_nothing_to_cut():
    """The first block varies with depth, the second does not: the second is cut."""
    model = net(2)
    with torch.no_grad():
        for p in model[2].field.parameters():
            p.copy_(p[:1].expand_as(p))
    batches = inputs(20, 3)
    small = ct.compress(model, budget=0.7, calibrate=batches)
    assert [n for n, _ in chosen(small)] == [4, 1]
    assert error(model, small, batches) < 1e-24


def test_statistics_keep_their_basis():
    """As long as there are evaluations to tell them apart."""
    block = scrambled(ct.ODEBlock(conv_unit(), ct.PiecewiseConstant(4), ct.Euler(steps=4)))
    batches = [torch.randn(8, 4, 6, 6) for _ in range(2)]
    small = ct.compress(block, budget=0.5, calibrate=batches)
    assert (small.basis, small.state_basis) == (ct.PiecewiseConstant(2), ct.PiecewiseConstant(4))
    small = ct.compress(block, budget={"evaluations": 2}, calibrate=batches)
    assert small.state_basis == ct.PiecewiseConstant(2)


@pytest.mark.parametrize("make", [lambda: make_pair(3), mixed], ids=["pair", "mixed"])
@pytest.mark.parametrize("budget", [0.6, {"evaluations": 0.5}], ids=str)
def test_any_basis_and_solver(make, budget):
    model = make().double()
    small = ct.compress(model, budget=budget, calibrate=inputs(6, 3))
    found = ct.compare(model, small)
    if budget == 0.6:
        assert found.target.parameters <= 0.6 * found.source.parameters
        assert {c.target for c in found.tensors} != {c.source for c in found.tensors}
    else:
        assert found.target.evaluations <= found.source.evaluations / 2


@pytest.mark.parametrize("weight", [None, "fisher"])
def test_fit_at_the_end(weight):
    model, batches = net(1), inputs(20, 3, n=4)
    budget = {"parameters": 0.7, "evaluations": 0.5}
    given = {"budget": budget, "calibrate": batches, "weight": weight}
    plain = ct.compress(model, **given)
    fitted = ct.compress(model, method="fit", **given)
    assert error(model, fitted, batches) < error(model, plain, batches)


@pytest.mark.parametrize("within", [0.0, 1e-3, 0.1, math.inf])
def test_smallest_within(within):
    model, batches = net(), inputs(20, 3)

    def quality(one: nn.Module) -> float:
        assert not one.training
        return -error(model, one, batches)

    within = min(within, 1e6)
    small = ct.compress(model, within=within, evaluate=quality, calibrate=batches)
    assert quality(small.eval()) >= -within - 1e-8
    if within == 0:
        assert chosen(small) == chosen(model)
    if within > 1:
        assert [n for n, _ in chosen(small)] == [1, 1, 1]


def test_smaller_for_more_tolerance():
    model, batches = net(), inputs(20, 3)
    found = [
        parameters(
            ct.compress(
                model,
                within=within,
                evaluate=lambda one: torch.tensor(-error(model, one, batches)),
                calibrate=batches,
            )
        )
        for within in (1e-4, 1e-2, 1.0)
    ]
    assert found == sorted(found, reverse=True)
    assert found[0] > found[-1]


ADAPTIVE = ct.Dopri5(rtol=1e-3, atol=1e-3)
X = [torch.ones(4, 3, dtype=torch.float64)]


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"budget": 0.5}, "budget= needs inputs"),
        ({"within": 1, "evaluate": len}, "within= needs inputs"),
        ({"budget": 0.5, "calibrate": []}, "calibrate has no batches"),
        ({"budget": 0.5, "calibrate": [X[0] * math.nan]}, "batch 0 of calibrate contains NaN"),
        (
            {"budget": 0.5, "calibrate": [torch.ones(4, 7).double()]},
            "batch 0 of calibrate: the model refuses",
        ),
        (
            {"budget": 0.01, "calibrate": X},
            r"5 parameters is below the smallest .*: 176 parameters, 0.303 of its own",
        ),
        ({"budget": {"evaluations": 0.1}, "calibrate": X}, "smallest .*: 2 evaluations, 0.25 of"),
        ({"budget": 0, "calibrate": X}, "up to 1 or a whole number of parameters, not 0"),
        ({"budget": 1.5, "calibrate": X}, "not 1.5"),
        ({"budget": "half", "calibrate": X}, "not 'half'"),
        ({"budget": True, "calibrate": X}, "not True"),
        ({"budget": math.nan, "calibrate": X}, "not nan"),
        ({"budget": {}, "calibrate": X}, "budget is empty; limit one of parameters"),
        ({"budget": {"size": 0.5}, "calibrate": X}, "parameters, .*, latency, not 'size'"),
        ({"budget": {"latency": 3}, "calibrate": X}, "latency is a share above 0 and up to 1, not"),
        ({"budget": 0.5, "within": 1, "calibrate": X}, "a budget or within, not both"),
        ({"budget": 0.5, "steps": 2, "calibrate": X}, "budget= chooses steps"),
        ({"budget": 0.5, "basis": ct.Constant(), "calibrate": X}, "budget= chooses basis"),
        ({"within": 1, "calibrate": X}, "evaluate=accuracy"),
        ({"within": -1, "evaluate": len, "calibrate": X}, "at least 0, not -1"),
        ({"within": 1, "evaluate": lambda m: math.nan, "calibrate": X}, "evaluate gives nan"),
        ({"evaluate": len, "steps": 2}, "goes with within="),
    ],
)
def test_refusals(given, match):
    with pytest.raises(ct.ContinuaError, match=match):
        ct.compress(net(2), **given)


def test_adaptive_steps_have_no_number():
    model = net(1, solver=ADAPTIVE)
    small = ct.compress(model, budget=0.6, calibrate=X)
    ((size, solver),) = chosen(small)
    assert size < 4
    assert solver == ADAPTIVE
    with pytest.raises(ct.ArgumentError, match="needs a fixed grid"):
        ct.compress(model, budget={"evaluations": 0.5}, calibrate=X)


def test_a_budget_between_two_sizes_says_what_there_is(caplog):
    """Half of the functions and what lies outside of blocks are a bit more than half."""
    torch.manual_seed(0)
    block = ct.ODEBlock(
        nn.Linear(6, 6), ct.PiecewiseConstant(4), ct.Euler(steps=4), init="independent"
    )
    model = nn.Sequential(block, nn.Linear(6, 2)).double()
    small = ct.compress(model, budget=0.5, calibrate=inputs(64, 6))
    assert small[0].basis == ct.PiecewiseConstant(1)
    (record,) = [r for r in caplog.records if "next larger" in r.message]
    assert "0.308 of the model; the next larger choice has 0.538" in record.message
    caplog.clear()
    ct.compress(model, budget=0.55, calibrate=inputs(64, 6))
    assert not [r for r in caplog.records if "next larger" in r.message]


def test_outputs_that_are_far_are_told(caplog):
    torch.manual_seed(0)
    layers = [nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 6)) for _ in range(4)]
    model, x = ct.convert(layers, skip="outside").double(), inputs(64, 6)
    ct.compress(model, ct.PiecewiseConstant(4), calibrate=x)
    assert not caplog.records
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(5)
    ct.compress(model, ct.PiecewiseConstant(1), steps=1, calibrate=x)
    assert "method='fit', and then heal, brings them nearer" in caplog.text
