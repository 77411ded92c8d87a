"""One model in many sizes: the table, what is picked, and what is refused."""

import pytest
import torch
from torch import nn

import continua as ct
from continua import plot
from continua.measure import Front, Variant
from nets import Net, make_pair, scrambled


@pytest.fixture
def model():
    torch.manual_seed(0)
    net = Net()
    scrambled(net.block)
    return net


def made(*rows):
    """A front of sizes with these values and parameters, and perhaps milliseconds."""
    return Front(
        tuple(
            Variant(i, value, parameters, 4 * parameters, 1, *(time or [None]), nn.Identity())
            for i, (value, parameters, *time) in enumerate(rows)
        )
    )


def test_the_sizes_are_those_of_compress(model):
    x = torch.randn(5, 3)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    front = ct.sweep(model, lambda m: m(x).sum(), x={"x": x}, rounds=1)
    assert [v.size for v in front.variants] == [4, 2, 1]
    for v in front.variants:
        expected = ct.compress(model, ct.PiecewiseConstant(v.size), steps=v.size).eval()
        assert v.value == expected(x).sum().item()
        assert v.parameters == sum(p.numel() for p in expected.parameters())
        assert v.evaluations == v.size
        assert v.milliseconds > 0
        assert not v.model.training
    assert model.training
    assert all(torch.equal(v, before[n]) for n, v in model.state_dict().items())


def test_sizes_may_be_arguments_of_compress(model):
    size = {"basis": ct.PiecewiseConstant(3), "steps": 2}
    front = ct.sweep(model, lambda m: 1.0, [size, 2])
    assert [v.size for v in front.variants] == [4, size, 2]
    assert front.variants[1].model.block.solver == ct.Euler(steps=2)
    pair = ct.sweep(make_pair(3), lambda m: 1.0, [{"steps": 1}])
    assert [v.evaluations for v in pair.variants] == [12, 5]


def test_an_elastic_model_gives_its_own_statistics(model):
    x = torch.randn(9, 3) + 2
    elastic = ct.Elastic(model, [4, 2, 1])
    for step in range(4):
        elastic.loss(x, torch.sum, step)
    front = ct.sweep(elastic, lambda m: m(x).sum())
    elastic.eval()
    assert [v.value for v in front.variants] == [elastic(x, size=n).sum().item() for n in (4, 2, 1)]
    assert [v.size for v in ct.sweep(elastic, lambda m: 0.0, [1]).variants] == [4, 1]


def test_pick_takes_the_smallest_that_is_near_enough():
    front = made((90.0, 100), (89.6, 60), (89.5, 50), (88.0, 20))
    assert [front.pick(within=w).size for w in (0, 0.4, 0.5, 1.9, 2)] == [0, 1, 2, 2, 3]
    errors = Front(front.variants, higher=False)
    assert errors.pick(within=0).size == 3
    with pytest.raises(ct.ArgumentError, match="at least 0, not -1"):
        front.pick(within=-1)


def test_the_front_leaves_out_what_another_beats():
    front = made((90.0, 100, 5.0), (80.0, 100, 5.0), (85.0, 50, 3.0), (84.0, 60, 2.0))
    assert [front.optimal(v) for v in front.variants] == [True, False, True, True]


def test_it_shows_as_a_table():
    front = made((90.0, 2000), (89.5, 1000))
    lines = str(front).splitlines()
    assert lines[0].split() == [
        "size",
        "value",
        "change",
        "parameters",
        "share",
        "evaluations",
        "front",
    ]
    assert lines[2].split() == ["1", "89.5", "-0.5", "1,000", "0.500", "1", "*"]
    shown = made((90.0, 2000, 1.5))._repr_html_()
    assert shown.startswith("<table>")
    assert "<td>1.50</td>" in shown


def test_figures():
    timed = plot.sweep(made((90.0, 100, 5.0), (85.0, 50, 3.0)), measure="accuracy, %")
    assert [ax.get_xlabel() for ax in timed.axes] == ["parameters", "milliseconds"]
    plain = plot.sweep(made((90.0, 100), (85.0, 50)))
    assert len(plain.axes) == 1
    with pytest.raises(ct.ArgumentError, match="no models"):
        plot.families({}, samples=10)


def test_bad_input(model):
    with pytest.raises(ct.ArgumentError, match="function of a model, not 3"):
        ct.sweep(model, 3)
    with pytest.raises(ct.ArgumentError, match="nan for size 4"):
        ct.sweep(model, lambda m: float("nan"))
    with pytest.raises(ct.ArgumentError, match="None for size 4"):
        ct.sweep(model, lambda m: None)
    with pytest.raises(ct.ArgumentError, match="empty"):
        ct.sweep(model, lambda m: 1.0, [])
    with pytest.raises(ct.ArgumentError, match="8 is larger"):
        ct.sweep(model, lambda m: 1.0, [8])
    with pytest.raises(ct.ArgumentError, match="rounds"):
        ct.sweep(model, lambda m: 1.0, rounds=0)
    with pytest.raises(ct.ArgumentError, match="different bases"):
        ct.sweep(make_pair(3), lambda m: 1.0)
    with pytest.raises(ct.ArgumentError, match="no ODEBlock"):
        ct.sweep(nn.Linear(2, 2), lambda m: 1.0)
