"""`convert` on a model that cannot be converted, or only with care."""

import warnings

import pytest
import torch
from torch import nn

import continua as ct
from transform.test_convert_model import Block, Net, X, net


def quantized() -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.ao.quantization.quantize_dynamic(net(), {nn.Linear})


def in_bytes() -> nn.Module:
    model = net(2)
    for layer in model.layers:  # as libraries of quantised layers keep them
        layer.linear.weight = nn.Parameter(torch.zeros(4, 2, dtype=torch.uint8), False)
    return model


def lazy() -> nn.Module:
    model = net(2)
    for layer in model.layers:
        layer.linear = nn.LazyLinear(4)
    return model


def hooked() -> nn.Module:
    model = net(2)
    model.layers[1].register_forward_hook(lambda module, given, out: None)
    return model


def shared() -> nn.Module:
    model = net(2)
    model.layers[0].linear.weight = model.first = nn.Parameter(torch.zeros(4, 4))
    return model


REFUSED = {
    "no two like layers": (lambda: nn.Sequential(nn.Linear(4, 4), nn.Tanh()), "no two like layers"),
    "one layer": (lambda: net(1), "no two like layers"),
    "quantised": (quantized, r"'linear' in layers 0 and 1 is quantised.*first, and quantise"),
    "weights of a byte": (in_bytes, "'linear' in layers 0 and 1 is quantised"),
    "lazy": (lazy, r"'linear' \(LazyLinear\) is not initialised yet"),
    "other hooks": (hooked, "layers 0 and 1 differ in '_forward_hooks'.*remove the hooks"),
    "shared": (shared, "'linear.weight' of Block 0 is shared with another part"),
    "converted": (lambda: ct.convert(net()), "has blocks already"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_converted_is_named_and_stays_as_it_is(name):
    make, sentence = REFUSED[name]
    model = make()
    before = {key: id(value) for key, value in model.named_parameters()}
    with pytest.raises(ct.ModuleError, match=sentence):
        ct.convert(model, copy=False)
    assert {key: id(value) for key, value in model.named_parameters()} == before


def test_like_hooks_stay():
    model = net()

    def double(module, given, out):
        return 2 * out

    for layer in model.layers:
        layer.linear.register_forward_hook(double)
    made = ct.convert(model)
    assert torch.equal(made(X), model(X))
    assert torch.equal(ct.revert(made)(X), model(X))


def test_frozen_layers_stay_frozen():
    model = net()
    model.layers.requires_grad_(False)
    made = ct.convert(model)
    assert torch.equal(made(X), model(X))
    assert not any(p.requires_grad for p in made.layers.parameters())
    assert not any(p.requires_grad for p in ct.revert(made).layers.parameters())
    model.layers[2:].requires_grad_(True)
    assert [(run.start, run.stop) for run in ct.stacks(model)] == [(0, 2), (2, 4)]


def test_tied_layers_stay_one():
    layer = Block()
    model = Net([layer] * 3).eval()
    made = ct.convert(model)
    assert torch.equal(made(X), model(X))
    assert made.layers.block0.field.layer.linear.weight.shape == (1, 4, 4)
    plain = ct.revert(made)
    assert plain.layers[0].linear.weight is plain.layers[2].linear.weight


def test_on_the_meta_device():
    with torch.device("meta"):
        made = ct.convert(Net([Block(i) for i in range(3)]))
        assert made(torch.empty(2, 4)).shape == (2, 2)
    assert made.layers.block0.field.layer.linear.weight.is_meta


def test_layers_that_change_the_shape_cannot_be_fewer():
    class Halves(Block):
        def forward(self, x):
            return x[::2] + self.linear(x[::2]), None

    model = Net([Halves() for _ in range(2)])
    made = ct.convert(model)
    x = torch.randn(8, 4)
    assert torch.equal(made(x), model(x))
    with pytest.raises(ct.ShapeError, match=r"Halves maps \[8, 4\] to \[4, 4\]"):
        ct.compress(made, ct.PiecewiseConstant(1), steps=1)(x)


def test_arguments_of_a_list_are_not_for_models():
    with pytest.raises(ct.ArgumentError, match="for a list of layers"):
        ct.convert(net(), skip="outside")
    with pytest.raises(ct.ArgumentError, match="no layers that"):
        ct.revert(net())
    with pytest.raises(ct.ArgumentError, match="not int"):
        ct.stacks(3)
