"""`convert`: a stack of layers as one block that computes the same."""

import pytest
import torch
from torch import nn

import continua as ct
from continua.models import resnet
from transform.stacks import Holder, Unit, applied, layer_of, stack


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
    again = ct.load(tmp_path, factory=made)
    assert torch.equal(again[1](x), model[1](x))


def test_on_the_meta_device():
    with torch.device("meta"):
        block = ct.convert([Unit() for _ in range(3)])
    assert block.field.layer.conv.weight.is_meta


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
