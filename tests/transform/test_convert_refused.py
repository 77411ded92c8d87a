"""Layers that `convert` refuses, and how it compares them."""

import dataclasses
import enum
import functools
import warnings

import numpy as np
import pytest
import torch
from torch import nn

import continua as ct
from transform.stacks import Holder, Unit, applied


def other_mask() -> Unit:
    layer = Unit()
    layer.mask = ~layer.mask
    return layer


def tied() -> nn.Module:
    layer = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    layer[1].weight = layer[0].weight
    return layer


LINEAR = nn.Linear(4, 4)
MISTAKES = {
    "nothing": ([], "empty"),
    "no list": (3, "takes a model.*or a list of layers, not int"),
    "no module": ([LINEAR, torch.tanh], "layer 1 is a builtin_function_or_method"),
    "another kind": ([LINEAR, nn.Tanh()], "differ in kind, Linear and Tanh"),
    "another part": (
        [nn.Sequential(LINEAR, nn.Tanh()), nn.Sequential(LINEAR, nn.ReLU())],
        "differ at '1', Tanh and ReLU",
    ),
    "a part more": (
        [nn.Sequential(LINEAR), nn.Sequential(LINEAR, nn.ReLU())],
        "differ at '1', nothing and ReLU",
    ),
    "another setting": (
        [Unit(), Unit(rate=0.7)],
        r"differ in 'rate', 0.5 and 0.7.*ignore=\['rate'",
    ),
    "another function": ([Unit(), Unit()], "differ in 'act'"),
    "another width": (
        [nn.Sequential(nn.Linear(4, n), nn.Linear(n, 4)) for n in (8, 9)],
        r"differ in the shape of '0.weight', \[8, 4\] and \[9, 4\]",
    ),
    "another shape": (
        [nn.ParameterList([torch.zeros(n)]) for n in (2, 3)],
        r"differ in the shape of '0', \[2\] and \[3\]",
    ),
    "another precision": ([nn.Linear(4, 4), nn.Linear(4, 4).double()], "the dtype of 'weight'"),
    "another mode": ([nn.Linear(4, 4), nn.Linear(4, 4).eval()], "differ in 'training'"),
    "a mask": ([Unit(), other_mask()], "differ in 'mask', which cannot vary with depth"),
    "ties": (
        [tied(), nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))],
        "which of their tensors are the same",
    ),
    "a field": ([ct.DepthConcat(nn.Linear(5, 4))], "skip='outside'"),
    "lazy": ([nn.LazyLinear(4), nn.LazyLinear(4)], "not initialised yet"),
    "a block": ([ct.ODEBlock(nn.Linear(4, 4))], "contains an ODEBlock"),
}
MISTAKES["another function"][0][1].act = nn.functional.silu


@pytest.mark.parametrize("name", MISTAKES)
def test_what_cannot_be_one_block_is_refused(name):
    layers, sentence = MISTAKES[name]
    with pytest.raises(ct.ContinuaError, match=sentence):
        ct.convert(layers)


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


@dataclasses.dataclass(frozen=True)
class Config:
    rate: float


class Settings:
    def __init__(self, rate):
        self.rate, self.owner = rate, self


class Scaled:
    def __init__(self, factor):
        self.factor = factor

    def run(self, x):
        return self.factor * x


def scaling(factor):
    return lambda x: factor * x


def quantized(value):
    torch.manual_seed(value)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(4, 4)), {nn.Linear})


VALUES = {
    "partial": lambda k: functools.partial(nn.functional.leaky_relu, negative_slope=k),
    "closure": scaling,
    "method": lambda k: Scaled(k).run,
    "tensor": torch.tensor,
    "array": lambda k: np.array([k]),
    "mapping": lambda k: {"rate": [k]},
    "dataclass": Config,
    "object": Settings,
    "enum": Colour,
    "set": lambda k: {k},
    "range": range,
    "module out of sight": lambda k: [nn.Dropout(k / 10)],
}


@pytest.mark.parametrize("name", VALUES)
def test_every_attribute_is_compared(name):
    make = VALUES[name]
    with pytest.raises(ct.ModuleError, match="differ in 'value'"):
        ct.convert([Holder(make(1)), Holder(make(2))])
    ct.convert([Holder(make(1)), Holder(make(2))], ignore="value")
    if name != "module out of sight":
        ct.convert([Holder(make(1)), Holder(make(1))])


def test_attributes_may_point_at_parts_and_at_what_cannot_be_compared():
    layers = [Holder(float("nan")) for _ in range(2)]
    for layer in layers:
        layer.parts, layer.weights = [layer.linear], (layer.linear.weight,)
        layer.itself = layer.forward
    ct.convert(layers)
    layers[1].value = layers[0].value = object()
    ct.convert(layers)
    layers[1].value = object()
    with pytest.raises(ct.ModuleError, match="differ in 'value'"):
        ct.convert(layers)


def test_hooks_are_compared():
    layers = [Holder(1), Holder(1)]
    layers[1].linear.register_forward_hook(lambda module, given, out: 2 * out)
    with pytest.raises(ct.ModuleError, match=r"differ in 'linear._forward_hooks', \[\]"):
        ct.convert(layers)


def test_packed_weights_are_refused():
    with pytest.raises(ct.ModuleError, match="'0' in layers 0 and 1 is quantised"):
        ct.convert([quantized(1), quantized(2)], skip="outside")


def test_two_classes_of_one_name():
    other = type("Holder", (Holder,), {"forward": lambda self, x: x - self.linear(x)})
    with pytest.raises(ct.ModuleError, match="Holder and Holder, two classes of one name"):
        ct.convert([Holder(1), other(1)])


@pytest.mark.parametrize("wrap", [nn.utils.parametrizations.weight_norm, None])
def test_parametrized_layers(wrap):
    torch.manual_seed(0)
    wrap = wrap or nn.utils.parametrizations.spectral_norm
    layers = [wrap(nn.Linear(4, 4)) for _ in range(3)]
    for layer in layers:
        layer.eval()
    x = torch.randn(2, 4)
    torch.testing.assert_close(ct.convert(layers, skip="outside")(x), applied(layers, x, "outside"))


def test_averages_that_count_batches_need_one_count():
    layers = [nn.Sequential(nn.BatchNorm1d(4, momentum=None)) for _ in range(2)]
    ct.convert(layers, skip="outside")
    layers[1](torch.randn(3, 4))
    with pytest.raises(ct.ModuleError, match=r"differ in '0\.num_batches_tracked'"):
        ct.convert(layers, skip="outside")


def test_layers_that_change_shape_or_return_more_are_refused():
    class Mean(Holder):
        def forward(self, x):
            return super().forward(x).mean(0, keepdim=True)

    class Pair(Holder):
        def forward(self, x):
            return super().forward(x), None

    x = torch.randn(2, 4)
    with pytest.raises(ct.ShapeError, match=r"Mean maps \[2, 4\] to \[1, 4\]"):
        ct.convert([Mean(1)])(x)
    with pytest.raises(ct.ShapeError, match="Pair returns a tuple"):
        ct.convert([Pair(1)])(x)


def test_an_unknown_skip_is_refused():
    with pytest.raises(ct.ArgumentError, match="'inside' or 'outside', not 'none'"):
        ct.convert([LINEAR], skip="none")


def test_settings_can_be_ignored():
    layers = [Unit(index=i) for i in range(3)]
    with pytest.raises(ct.ModuleError, match="differ in 'index', 0 and 1"):
        ct.convert(layers)
    assert ct.convert(layers, ignore=["ind*"]).field.layer.index == 0
