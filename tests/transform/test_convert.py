"""`convert`: a stack of layers as one block that computes the same."""

import dataclasses
import enum
import functools
import warnings

import numpy as np
import pytest
import torch
from torch import nn

import continua as ct
from continua.models import resnet


class Unit(nn.Module):
    """A residual unit, the input added or not; with settings, a mask, and a table that is fixed."""

    def __init__(self, adds: bool = False, rate: float = 0.5, index: int = 0):
        super().__init__()
        self.adds, self.rate, self.index = adds, rate, index
        self.norm = nn.BatchNorm2d(4)
        self.act = nn.functional.relu
        self.conv = nn.Conv2d(4, 4, 3, padding=1)
        self.register_buffer("mask", torch.tensor([True, True, False, True]))

    def forward(self, x: torch.Tensor, factor: float = 1.0) -> torch.Tensor:
        out = factor * self.rate * self.conv(self.act(self.norm(x)))
        out = out * self.mask[:, None, None]
        return x + out if self.adds else out


def stack(adds: bool, count: int = 5) -> nn.ModuleList:
    torch.manual_seed(0)
    layers = nn.ModuleList([Unit(adds) for _ in range(count)])
    with torch.no_grad():
        for layer in layers:
            layer.norm.running_mean.normal_()
            layer.norm.running_var.uniform_(0.5, 2)
            layer.norm.weight.normal_()
    return layers


def applied(layers, x, skip, **kwargs):
    for layer in layers:
        x = layer(x, **kwargs) if skip == "inside" else x + layer(x, **kwargs)
    return x


def layer_of(block, skip):
    return block.field.layer if skip == "inside" else block.field


@pytest.fixture
def x():
    return torch.randn(3, 4, 6, 6, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("skip", ["inside", "outside"])
@pytest.mark.parametrize("count", [1, 2, 5])
def test_the_block_computes_what_the_layers_do(skip, count, x):
    layers = stack(skip == "inside", count).eval()
    block = ct.convert(layers, skip=skip)
    assert not any(part.training for part in block.modules())
    torch.testing.assert_close(block(x), applied(layers, x, skip))
    with torch.inference_mode():
        torch.testing.assert_close(block(x), applied(layers, x, skip))
        torch.testing.assert_close(block(x, factor=0.3), applied(layers, x, skip, factor=0.3))
    assert block.solve(x).stats.evaluations == count


def test_outside_is_exact(x):
    layers = stack(adds=False).eval()
    assert torch.equal(ct.convert(layers, skip="outside")(x), applied(layers, x, "outside"))


@pytest.mark.parametrize("skip", ["inside", "outside"])
def test_the_block_trains_as_the_layers_do(skip, x):
    layers = stack(skip == "inside").double().train()
    block = ct.convert(layers, skip=skip)
    x = x.double().requires_grad_()
    (expected,) = torch.autograd.grad(applied(layers, x, skip).square().sum(), x, retain_graph=True)
    applied(layers, x, skip).square().sum().backward()
    x.grad = None
    block(x).square().sum().backward()
    torch.testing.assert_close(x.grad, expected)
    field = layer_of(block, skip)
    for name, stacked in field.named_parameters():
        grads = torch.stack([layer.get_parameter(name).grad for layer in layers])
        torch.testing.assert_close(stacked.grad, grads)
    block(x)  # as often as the layers were
    for name in ("norm.running_mean", "norm.running_var"):
        state = torch.stack([layer.get_buffer(name) for layer in layers])
        torch.testing.assert_close(field.get_buffer(name), state)


@pytest.mark.parametrize("skip", ["inside", "outside"])
def test_the_verbs_take_what_it_makes(skip, x):
    layers = stack(skip == "inside", 4).eval()
    block = ct.convert(layers, skip=skip)
    plain = ct.unroll(block)
    torch.testing.assert_close(plain(x, factor=0.3), applied(layers, x, skip, factor=0.3))
    assert not any("continua" in type(part).__module__ for part in plain.modules())
    small = ct.compress(block, ct.PiecewiseConstant(2), steps=2)
    row = torch.stack([layer.conv.weight for layer in layers[:2]]).mean(0)
    torch.testing.assert_close(layer_of(small, skip).conv.weight[0], row)
    there = ct.refine(block).at(2.7)
    there = there.layer if skip == "inside" else there
    torch.testing.assert_close(there.conv.weight, layers[2].conv.weight)


def test_layers_of_a_transformer_keep_what_they_take():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False).eval()
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    x, mask = torch.randn(2, 5, 8), torch.zeros(2, 5, dtype=torch.bool)
    mask[:, 3:] = True
    expected = encoder(x, src_key_padding_mask=mask)[:, :3]
    block = ct.convert(encoder.layers)
    for made in (block, ct.unroll(block)):
        out = made(x, src_key_padding_mask=mask)[:, :3]
        torch.testing.assert_close(out, expected, rtol=1e-4, atol=1e-5)


def test_a_stage_of_a_residual_network():
    torch.manual_seed(0)
    net = resnet(units=3).eval()
    x = torch.randn(2, 3, 32, 32)
    expected = net(x)
    stages = [
        (name, child)
        for name, child in net.named_children()
        if isinstance(child, nn.Sequential) and len({type(part) for part in child}) == 1
    ]
    assert stages
    for name, stage in stages:
        setattr(net, name, ct.convert(stage))
    torch.testing.assert_close(net(x), expected, rtol=1e-4, atol=1e-4)


def test_frozen_layers_become_frozen_functions_of_depth(x):
    layers = stack(adds=False).eval().requires_grad_(False)
    block = ct.convert(layers, skip="outside")
    assert block.field.conv.weight.shape == (5, 4, 4, 3, 3)
    assert not any(parameter.requires_grad for parameter in block.parameters())
    assert torch.equal(block(x), applied(layers, x, "outside"))
    layers[2].conv.bias.requires_grad_(True)
    with pytest.raises(ct.ModuleError, match=r"layers 1 and 2 differ in the requires_grad of"):
        ct.convert(layers, skip="outside")


def test_what_all_layers_share_stays_one_tensor(x):
    layers = stack(adds=False).eval()
    for layer in layers:
        layer.conv = layers[0].conv
    block = ct.convert(layers, skip="outside")
    assert block.field.conv.weight.shape == (1, 4, 4, 3, 3)
    assert block.field.norm.weight.shape == (5, 4)
    torch.testing.assert_close(block(x), applied(layers, x, "outside"))


def test_layers_are_not_changed_and_the_copy_is_apart(x):
    layers = stack(adds=True)
    before = {name: value.clone() for name, value in layers.state_dict().items()}
    block = ct.convert(layers)
    block(x)
    with torch.no_grad():
        for parameter in block.parameters():
            parameter.zero_()
    for name, value in layers.state_dict().items():
        assert torch.equal(value, before[name])


def test_the_memory_layout_of_kernels_stays():
    layers = stack(adds=False).to(memory_format=torch.channels_last)
    weight = ct.convert(layers, skip="outside").field.conv.weight
    assert weight[1].is_contiguous(memory_format=torch.channels_last)


def made(count: int = 3) -> nn.Sequential:
    return nn.Sequential(nn.Linear(2, 2), ct.convert([Unit() for _ in range(count)]))


def test_a_converted_model_is_saved_with_its_factory(tmp_path, x):
    model = made().eval()
    ct.save(model, tmp_path, factory=made, arguments={"count": 3})
    again = ct.load(tmp_path)
    assert torch.equal(again[1](x), model[1](x))


def test_on_the_meta_device():
    with torch.device("meta"):
        block = ct.convert([Unit() for _ in range(3)])
    assert block.field.layer.conv.weight.is_meta


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
    "no list": (3, "a list, an nn.ModuleList"),
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


class Holder(nn.Module):
    """A layer with one more attribute."""

    def __init__(self, value):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.value = value

    def forward(self, x):
        return x + self.linear(x)


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
    with pytest.raises(ct.ModuleError, match="differ in"):
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


def test_an_argument_may_have_the_name_of_the_state():
    class Named(Holder):
        def forward(self, x, z):
            return x + z * self.linear(x)

    layers = [Named(1), Named(1)]
    x = torch.randn(2, 4)
    torch.testing.assert_close(ct.convert(layers)(x, z=0.5), applied(layers, x, "inside", z=0.5))


def test_layers_in_a_dictionary():
    layers = nn.ModuleDict({"a": Holder(1), "b": Holder(1)})
    x = torch.randn(2, 4)
    torch.testing.assert_close(ct.convert(layers)(x), applied(layers.values(), x, "inside"))


def test_an_unknown_skip_is_refused():
    with pytest.raises(ct.ArgumentError, match="'inside' or 'outside', not 'none'"):
        ct.convert([LINEAR], skip="none")


def test_settings_can_be_ignored():
    layers = [Unit(index=i) for i in range(3)]
    with pytest.raises(ct.ModuleError, match="differ in 'index', 0 and 1"):
        ct.convert(layers)
    assert ct.convert(layers, ignore=["ind*"]).field.layer.index == 0
