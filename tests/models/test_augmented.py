"""The image classifiers of Dissecting Neural ODEs, table 1."""

import pytest
import torch
from torch import nn

import continua as ct
from continua.models import augmented_classifier

KINDS = ("vanilla", "zero", "input-layer", "second-order")
CIFAR = {"vanilla": 37_091, "zero": 34_954, "input-layer": 36_088, "second-order": 34_618}
MNIST = {"vanilla": 21_487, "zero": 20_398, "input-layer": 20_686, "second-order": 20_014}


def count(model):
    return sum(p.numel() for p in model.parameters())


def small(kind, **changes):
    torch.manual_seed(0)
    arguments = {"in_channels": 1, "width": 6, "classes": 3} | changes
    return ct.build(augmented_classifier, kind=kind, **arguments)


@pytest.mark.parametrize("kind", KINDS)
def test_parameters_for_cifar(kind):
    width = 62 if kind == "vanilla" else 42
    model = augmented_classifier(kind=kind, in_channels=3, width=width)
    assert count(model) == CIFAR[kind]


@pytest.mark.parametrize("kind", KINDS)
def test_parameters_for_mnist(kind):
    width = 48 if kind == "vanilla" else 32
    model = augmented_classifier(kind=kind, in_channels=1, width=width)
    assert count(model) == MNIST[kind]


@pytest.mark.parametrize("kind", KINDS)
def test_where_the_flow_starts(kind):
    model = small(kind)
    x = torch.randn(2, 1, 8, 8)
    z = model.stem(x)
    if kind == "vanilla":
        assert torch.equal(z, x)
    elif kind == "zero":
        assert torch.equal(z, torch.cat([torch.zeros(2, 5, 8, 8), x], 1))
    elif kind == "input-layer":
        assert torch.equal(z, model.stem[0].module(x))
    else:  # at the origin, with a velocity
        features = model.stem[0].module(x)
        assert torch.equal(z, torch.cat([torch.zeros(2, 3, 8, 8), features], 1))


def test_the_other_order():
    x = torch.randn(2, 1, 8, 8)
    z = small("zero", zeros="last").stem(x)
    assert torch.equal(z[:, :1], x)
    z = small("second-order", zeros="last").stem(x)
    assert z[:, :3].abs().max() > 0
    assert z[:, 3:].abs().max() == 0


def test_the_field_is_the_papers():
    kinds = [nn.GroupNorm, nn.Conv2d, nn.Softplus, nn.Conv2d, nn.Softplus, nn.GroupNorm, nn.Conv2d]
    field = augmented_classifier(kind="input-layer").block.at(0.0)
    assert [type(m) for m in field] == kinds
    assert (field[0].num_groups, field[5].num_groups) == (42, 42)
    assert [field[i].bias is None for i in (1, 3, 6)] == [True, True, False]
    second = augmented_classifier(kind="second-order").block.at(0.0)
    assert isinstance(second, ct.HigherOrder)
    assert second.module[6].out_channels == 21


def test_what_it_is_solved_with():
    block = augmented_classifier().block
    assert block.solver == ct.Dopri5(1e-4, 1e-4)
    assert block.gradient == ct.Adjoint()
    assert augmented_classifier(solver=ct.RK4(steps=2)).block.gradient == ct.Backprop()
    assert augmented_classifier(gradient=ct.Checkpoint()).block.gradient == ct.Checkpoint()


@pytest.mark.parametrize("kind", KINDS)
def test_a_training_step(kind):
    model = small(kind)
    with ct.count_evaluations(model) as evaluations:
        out = model(torch.randn(4, 1, 8, 8))
        assert out.shape == (4, 3)
        out.square().mean().backward()
    assert evaluations.forward >= 7
    assert evaluations.backward >= 7
    for name, p in model.named_parameters():
        assert p.grad is not None, name
        assert p.grad.abs().max() > 0, name


@pytest.mark.parametrize("kind", KINDS)
def test_files_and_sizes(kind, tmp_path):
    model, x = small(kind, basis=ct.PiecewiseConstant(2)).eval(), torch.randn(2, 1, 8, 8)
    again = ct.load(ct.save(model, tmp_path / "model"))
    with torch.no_grad():
        assert torch.equal(again(x), model(x))
        half = ct.compress(model, ct.PiecewiseConstant(1))
        assert half(x).isfinite().all()
    assert count(half) < count(model)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kind": "first-order"}, "kind is one of .* not 'first-order'"),
        ({"kind": "zero", "width": 1}, "width=1 leaves no room"),
        ({"kind": "second-order", "width": 5}, "width=5 cannot be halved"),
        ({"kind": "vanilla", "pooled": 0}, "pooled is a whole number"),
        ({"kind": "zero", "zeros": "middle"}, "zeros is 'first' or 'last', not 'middle'"),
        ({"kind": "zero", "epsilon": 0.0}, "epsilon"),
    ],
)
def test_what_cannot_be(changes, message):
    with pytest.raises(ct.ArgumentError, match=message):
        small(**changes)
