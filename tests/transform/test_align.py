"""Hidden units of neighbouring depths in the same order: nothing else changes."""

import copy

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment
from torch import Tensor, nn

import continua as ct
from continua.models import EncoderLayer
from continua.transform._assignment import assignment
from nets import conv_unit, make_pair, mlp, scrambled


@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 24), st.integers(0, 2**32 - 1), st.sampled_from(["normal", "ties", "similar"])
)
def test_assignment_is_the_cheapest(n, seed, kind):
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((n, 5))
    cost = {
        "normal": rng.standard_normal((n, n)),
        "ties": rng.integers(0, 3, (n, n)).astype(float),
        "similar": -rows @ rng.permutation(rows + 0.2 * rng.standard_normal((n, 5))).T,
    }[kind]
    found = assignment(cost)
    assert sorted(found) == list(range(n))
    exact = cost[linear_sum_assignment(cost)].sum()
    assert cost[np.arange(n), found].sum() == pytest.approx(exact, rel=1e-12, abs=1e-12)


# -- fields of all kinds


class Gated(nn.Module):
    """Two maps whose outputs are multiplied, from one weight or from two."""

    def __init__(self, fused: bool):
        super().__init__()
        self.fused = fused
        self.a = nn.Linear(6, 18 if fused else 9)
        self.b = nn.Identity() if fused else nn.Linear(6, 9, bias=False)
        self.norm = nn.LayerNorm(9)
        self.c = nn.Linear(9, 6)

    def forward(self, z: Tensor) -> Tensor:
        a, b = self.a(z).chunk(2, -1) if self.fused else (self.a(z), self.b(z))
        return self.c(self.norm(nn.functional.silu(a) * b))


class Attention(nn.Module):
    """Attention written out, with one weight for queries, keys and values."""

    def __init__(self):
        super().__init__()
        self.qkv, self.o = nn.Linear(8, 24), nn.Linear(8, 8)

    def forward(self, z: Tensor) -> Tensor:
        n, t, c = z.shape
        q, k, v = self.qkv(z).reshape(n, t, 3, 4, 2).permute(2, 0, 3, 1, 4).unbind(0)
        scores = (0.7 * q @ k.transpose(-2, -1)).softmax(-1)
        return self.o((scores @ v).transpose(1, 2).reshape(n, t, c))


def inverted() -> nn.Module:
    """A wide layer with a convolution of each channel by itself."""
    return nn.Sequential(
        nn.Conv2d(4, 10, 1),
        nn.BatchNorm2d(10),
        nn.ReLU6(inplace=True),
        nn.Conv2d(10, 10, 3, padding=1, groups=10),
        nn.BatchNorm2d(10),
        nn.PReLU(10),
        nn.Conv2d(10, 4, 1),
    )


def three() -> nn.Module:
    """A map with permutable units on both sides."""
    return nn.Sequential(
        nn.Linear(4, 7), nn.Tanh(), nn.Linear(7, 9), nn.LayerNorm(9), nn.GELU(), nn.Linear(9, 4)
    )


def torch_layer(**options) -> nn.Module:
    return nn.TransformerEncoderLayer(8, 4, 16, dropout=0.0, batch_first=True, **options)


#: a field and the shape of its state
FIELDS = {
    "linear": (lambda: mlp(norm=True), (5, 6)),
    "conv": (conv_unit, (2, 4, 8, 8)),
    "inverted": (inverted, (2, 4, 8, 8)),
    "three": (three, (5, 4)),
    "gated": (lambda: Gated(fused=False), (5, 6)),
    "gated, fused": (lambda: Gated(fused=True), (5, 6)),
    "attention": (Attention, (2, 5, 8)),
    "encoder": (lambda: EncoderLayer(8, heads=4, mlp=16), (2, 5, 8)),
    "torch encoder": (torch_layer, (2, 5, 8)),
    "torch encoder, norm first": (lambda: torch_layer(norm_first=True), (2, 5, 8)),
}


def stacked(field: nn.Module, buckets: int = 4) -> ct.ODEBlock:
    block = ct.ODEBlock(field, ct.PiecewiseConstant(buckets), ct.Euler(steps=buckets))
    return scrambled(block.double())


@pytest.mark.parametrize("name", FIELDS)
def test_outputs_stay(name):
    torch.manual_seed(0)
    make, shape = FIELDS[name]
    block = stacked(make())
    before = copy.deepcopy(block.state_dict())
    aligned = ct.align(block)
    assert all(torch.equal(value, before[key]) for key, value in block.state_dict().items())
    assert ct.smoothness(aligned) <= ct.smoothness(block)
    x = torch.randn(shape, dtype=torch.float64)
    for training in (True, False, True, False):  # statistics move on in between
        out, expected = aligned.train(training)(x), block.train(training)(x)
        torch.testing.assert_close(out, expected, rtol=1e-11, atol=1e-11)


#: for some fields how many units there are, and where: tensor, dimension, and the parts of this
#: dimension outside and inside of the units
PLACES = {
    "linear": (8, [("1.weight", 0, 1, 1), ("1.bias", 0, 1, 1), ("3.weight", 1, 1, 1)]),
    "conv": (
        4,
        [
            ("2.weight", 0, 1, 1),
            *((f"3.{name}", 0, 1, 1) for name in ("weight", "bias", "running_mean", "running_var")),
            ("5.weight", 1, 1, 1),
        ],
    ),
    "gated, fused": (
        9,
        [
            ("a.weight", 0, 2, 1),
            ("a.bias", 0, 2, 1),
            ("norm.weight", 0, 1, 1),
            ("norm.bias", 0, 1, 1),
            ("c.weight", 1, 1, 1),
        ],
    ),
    "attention": (4, [("qkv.weight", 0, 3, 2), ("qkv.bias", 0, 3, 2), ("o.weight", 1, 1, 2)]),
    "encoder": (
        4,
        [
            *((f"attention.{name}.weight", 0, 1, 2) for name in "qkv"),
            ("attention.o.weight", 1, 1, 2),
        ],
    ),
    "torch encoder": (
        4,
        [
            ("self_attn.in_proj_weight", 0, 3, 2),
            ("self_attn.in_proj_bias", 0, 3, 2),
            ("self_attn.out_proj.weight", 1, 1, 2),
        ],
    ),
}


@torch.no_grad()
def shuffled(layer: nn.Module, name: str) -> nn.Module:
    count, places = PLACES[name]
    layer = copy.deepcopy(layer)
    order = torch.randperm(count)
    for path, dim, outside, inside in places:
        rows = layer.state_dict()[path].movedim(dim, 0)
        parts = rows.clone().unflatten(0, (outside, count, inside))
        rows.copy_(parts[:, order].flatten(0, 2))
    return layer


@pytest.mark.parametrize("name", PLACES)
def test_units_in_disorder_are_put_in_order(name):
    """Depths that differ in nothing but the order of their units become equal."""
    torch.manual_seed(0)
    make, shape = FIELDS[name]
    layer = stacked(make(), buckets=1).at(0.0)
    block = ct.convert([layer, *(shuffled(layer, name) for _ in range(5))], skip="outside")
    assert ct.smoothness(block) > 0.1
    aligned = ct.align(block)
    assert ct.smoothness(aligned) == 0
    for key in block.expansion.state:
        buffer = aligned.field.get_buffer(key)
        torch.testing.assert_close(buffer, buffer[:1].expand_as(buffer), rtol=0, atol=0)
    x = torch.randn(shape, dtype=torch.float64)
    torch.testing.assert_close(aligned.eval()(x), block.eval()(x), rtol=1e-11, atol=1e-11)


# -- what stays as it is


class Split(nn.Module):
    """Units that are told apart."""

    def __init__(self, how: str):
        super().__init__()
        self.how = how
        self.a, self.b = nn.Linear(4, 6), nn.Linear(6, 4)

    def forward(self, z: Tensor) -> Tensor:
        h = self.a(z)
        match self.how:
            case "sorted":
                h = h.sort(-1).values
            case "summed":
                h = h.cumsum(-1)
            case "scaled":
                h = h * torch.arange(6.0).to(h)
            case "read":
                h = h * (1.0 if h[0, 0].item() > 0 else 2.0)
            case "added":
                h = torch.cat([z, h[:, 4:]], -1)
            case "transposed":
                h = (h.T @ h.sigmoid()) @ h.T
                return self.b(h.T)
        return self.b(h.tanh())


@pytest.mark.parametrize("how", ["sorted", "summed", "scaled", "read", "added", "transposed"])
def test_units_that_are_not_alike_stay(how):
    """Others of the same map may: the last two of "added", and all but the first of "read"."""
    torch.manual_seed(0)
    block = stacked(Split(how))
    x = torch.randn(6, 4, dtype=torch.float64)
    if how in ("added", "read"):
        aligned = ct.align(block, x)
        torch.testing.assert_close(aligned(x), block(x), rtol=1e-11, atol=1e-11)
    else:
        with pytest.raises(ct.ModuleError, match="change places"):
            ct.align(block, x)


def test_a_tensor_with_another_basis_holds_its_units():
    bases = {"0.bias": ct.Constant(), "*": ct.PiecewiseConstant(4)}
    block = scrambled(ct.ODEBlock(mlp(), bases, ct.Euler(steps=4)))
    with pytest.raises(ct.ModuleError, match="change places"):
        ct.align(block)


def test_frozen_and_tied_tensors():
    torch.manual_seed(0)
    field = mlp()
    field.append(nn.Tanh()).append(nn.Linear(6, 8)).append(nn.Tanh()).append(field[2])
    block = stacked(field)
    aligned = ct.align(block)
    assert aligned.field[6] is aligned.field[2]
    x = torch.randn(3, 6, dtype=torch.float64)
    torch.testing.assert_close(aligned(x), block(x), rtol=1e-11, atol=1e-11)
    block.field[0].weight.requires_grad_(False)
    assert not ct.align(block).field[0].weight.requires_grad


def test_all_blocks_of_a_model():
    """Those with buckets: the second block of the pair has another basis."""
    torch.manual_seed(0)
    model = make_pair(3).double()
    scrambled(model[0])
    aligned = ct.align(model)
    x = torch.randn(4, 3, dtype=torch.float64)
    torch.testing.assert_close(aligned(x), model(x), rtol=1e-11, atol=1e-11)
    assert ct.smoothness(aligned[0]) < ct.smoothness(model[0])
    assert ct.smoothness(aligned[2]) == ct.smoothness(model[2])


def test_an_input_for_a_field_that_needs_one():
    """A mask that has no default, and a state that no map of the field tells."""

    class Masked(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = EncoderLayer(8, heads=2, mlp=8)

        def forward(self, z: Tensor, mask: Tensor) -> Tensor:
            return self.layer(z, mask)

    torch.manual_seed(0)
    block = stacked(Masked())
    x = torch.randn(2, 5, 8, dtype=torch.float64)
    mask = torch.rand(2, 1, 1, 5) > 0.3
    with pytest.raises(ct.ModuleError, match=r"align\(model, x\)"):
        ct.align(block)
    for arguments in ((x, mask), {"x": x, "mask": mask}):
        aligned = ct.align(block, arguments)
        torch.testing.assert_close(
            aligned(x, mask=mask), block(x, mask=mask), rtol=1e-11, atol=1e-11
        )


def test_a_field_of_depth_and_input():
    torch.manual_seed(0)
    block = stacked(ct.DepthConcat(nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 2))))
    x = torch.randn(4, 2, dtype=torch.float64)
    aligned = ct.align(block)
    torch.testing.assert_close(aligned(x), block(x), rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize(
    ("basis", "message"),
    [(ct.Legendre(3), r"Legendre\(3\)"), (ct.PiecewiseConstant(1), "at least 2")],
)
def test_blocks_without_buckets_are_refused(basis, message):
    with pytest.raises(ct.ArgumentError, match=message):
        ct.align(ct.ODEBlock(mlp(), basis, ct.Euler(steps=2)))
    with pytest.raises(ct.ArgumentError, match="no ODEBlock"):
        ct.align(mlp())


def test_an_elastic_model_is_refused():
    block = ct.ODEBlock(mlp(), ct.PiecewiseConstant(4), ct.Euler(steps=4))
    with pytest.raises(ct.ArgumentError, match="elastic"):
        ct.align(ct.Elastic(block, sizes=[4, 2]))
