"""Tools that change modules: parametrizations, LoRA, quantisation, TorchScript."""

import warnings

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize

import continua as ct
from torch_features.device import DEVICE, KINDS, inputs, made


class LowRank(nn.Module):
    """W + b a: an update of low rank."""

    def __init__(self, out: int, inner: int):
        super().__init__()
        torch.manual_seed(2)
        self.a = nn.Parameter(0.1 * torch.randn(1, inner, dtype=torch.float64))
        self.b = nn.Parameter(0.1 * torch.randn(out, 1, dtype=torch.float64))

    def forward(self, weight):
        return weight + self.b @ self.a


@pytest.mark.parametrize("kind", KINDS, ids=repr)
def test_a_parametrization_after_wrapping(kind):
    block, x = made(kind), inputs()
    plain = made(kind)
    update = LowRank(8, 3).to(DEVICE)
    parametrize.register_parametrization(block.field[0], "weight", update)
    with torch.no_grad():
        plain.field[0].weight[0] += update.b @ update.a  # the constant function of the basis
    torch.testing.assert_close(block(x), plain(x))
    block(x).square().sum().backward()
    plain(x).square().sum().backward()
    stack = block.field[0].parametrizations.weight.original
    torch.testing.assert_close(stack.grad, plain.field[0].weight.grad)
    torch.testing.assert_close(update.b.grad, plain.field[0].weight.grad[0] @ update.a.T)
    torch.testing.assert_close(block.at(0.3)(x), plain.at(0.3)(x))
    if isinstance(kind[1], ct.RK4):  # a reversible method cannot be unrolled
        torch.testing.assert_close(ct.unroll(block)(x), plain(x))
    torch.testing.assert_close(ct.refine(block)(x), ct.refine(plain)(x))


def test_a_frozen_block_learns_an_update_of_low_rank():
    block, x = made(KINDS[0]).requires_grad_(False), inputs()
    before = {name: value.clone() for name, value in block.state_dict().items()}
    update = LowRank(8, 3).to(DEVICE)
    parametrize.register_parametrization(block.field[0], "weight", update)
    optimizer = torch.optim.Adam(update.parameters(), lr=0.05)
    losses = []
    for _ in range(20):
        loss = (block(x) - 1).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.9 * losses[0]
    expected = block(x)
    parametrize.remove_parametrizations(block.field[0], "weight", leave_parametrized=False)
    torch.testing.assert_close(block.state_dict(), before)
    assert not torch.allclose(block(x), expected)


@pytest.mark.parametrize("kind", KINDS[:2], ids=repr)
def test_updates_of_low_rank_that_vary_with_depth(kind):
    """Wrapped before: the update is a function of depth, the frozen weight is not."""
    linear = nn.Linear(3, 3, dtype=torch.float64).requires_grad_(False)
    parametrize.register_parametrization(linear, "weight", LowRank(3, 3))
    block = ct.ODEBlock(linear, ct.Fourier(1), *kind[::-1]).to(DEVICE)
    shapes = [list(p.shape) for p in block.parameters() if p.requires_grad]
    assert shapes == [[3, 1, 3], [3, 3, 1]]
    block(inputs()).sum().backward()
    assert all(p.grad is not None for p in block.parameters() if p.requires_grad)


class Wrapped(nn.Module):
    def __init__(self, base):
        super().__init__()
        self.base = base

    def forward(self, z):
        return self.base(z)


@pytest.mark.parametrize("wrap", [Wrapped, parametrizations.weight_norm], ids=["module", "norm"])
def test_weights_that_have_moved_are_missed(wrap):
    block = made(KINDS[0])
    block.field[0] = wrap(block.field[0])
    with pytest.raises(ct.ModuleError, match="before it becomes a field"):
        block(inputs())


@pytest.mark.skipif(DEVICE != "cpu", reason="torch.ao quantises for the CPU")
def test_quantisation():
    block, x = made(KINDS[0], dtype=torch.float32).eval(), inputs(dtype=torch.float32)
    expected = block(x)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of its deprecation
        with pytest.raises(RuntimeError, match="2-dimensional"):
            torch.ao.quantization.quantize_dynamic(block, {nn.Linear})
        small = torch.ao.quantization.quantize_dynamic(ct.unroll(block), {nn.Linear})
    assert not any(isinstance(part, nn.Linear) for part in small.modules())
    torch.testing.assert_close(small(x), expected, rtol=0.1, atol=0.1)
    torch.testing.assert_close(block(x), expected)


def test_packed_weights_in_a_block_are_refused():
    """As torchao puts them in the place of a layer's weights."""
    Packed = type("Packed", (torch.Tensor,), {"__module__": "torchao.quantization"})
    block = made(KINDS[0]).eval()
    layer = block.field[0]
    layer.weight = nn.Parameter(layer.weight.detach().as_subclass(Packed))
    with pytest.raises(ct.ModuleError, match=r"quantise continua\.unroll\(model\)"):
        block(inputs())


def test_torchscript():
    block, x = made(KINDS[0]).eval(), inputs()
    with pytest.raises(ct.ModuleError, match="unroll"):
        torch.jit.script(nn.Sequential(block))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of annotations that it does not read
        scripted = torch.jit.script(ct.unroll(block))
    torch.testing.assert_close(scripted(x), block(x))


@pytest.mark.parametrize("kind", KINDS, ids=repr)
def test_a_slope_is_in_the_graph_whatever_the_gradient(kind):
    block, plain, z = made(kind), made(KINDS[0]), inputs().requires_grad_()
    expected = torch.autograd.grad(plain.slope(0.3, z).square().sum(), [z, *plain.parameters()])
    found = torch.autograd.grad(block.slope(0.3, z).square().sum(), [z, *block.parameters()])
    torch.testing.assert_close(found, expected)
