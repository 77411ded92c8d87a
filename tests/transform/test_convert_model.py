"""`convert` on a model, with layers of torch: what is found, what is left out, what is kept."""

import copy
from collections import OrderedDict

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import continua as ct
from transform.stacks import Unit


class Block(nn.Module):
    """A residual layer with an index and a dropout rate, that returns two things."""

    def __init__(self, index: int = 0, rate: float = 0.0, width: int = 4):
        super().__init__()
        self.layer_idx = index
        self.norm, self.linear = nn.LayerNorm(width), nn.Linear(width, width)
        self.dropout = nn.Dropout(rate)

    def forward(self, x, scale=1.0, seen=None):
        if seen is not None:
            seen.append(self.layer_idx)
        return x + scale * self.dropout(self.linear(self.norm(x))), self.layer_idx


class Net(nn.Module):
    """Calls its layers one by one."""

    def __init__(self, layers):
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.head = nn.Linear(4, 2)

    def forward(self, x, **kwargs):
        for layer in self.layers:
            x, _ = layer(x, **kwargs)
        return self.head(x)


def net(count: int = 4) -> Net:
    torch.manual_seed(0)
    return Net([Block(i, 0.1 * i) for i in range(count)]).eval()


X = torch.randn(3, 4, generator=torch.Generator().manual_seed(1))


def test_indices_and_rates_go_to_their_own_layer():
    model = net()
    made = ct.convert(model)
    assert torch.equal(made(X, scale=0.5), model(X, scale=0.5))
    assert [layer.dropout.p for layer in made.layers] == [0.0, 0.1, 0.2, 0.30000000000000004]
    seen: list[int] = []
    made(X, seen=seen)
    assert seen == [0, 1, 2, 3]
    small = ct.compress(made, ct.PiecewiseConstant(2), steps=2)
    seen.clear()
    small(X, seen=seen)
    assert seen == [0, 1]
    assert len(small.layers) == 2
    assert [layer.dropout.p for layer in ct.revert(small).layers] == [0.1, 0.30000000000000004]
    assert all(type(layer) is Block for layer in ct.revert(small).layers)
    smooth = ct.compress(made, ct.Chebyshev(2))
    torch.testing.assert_close(ct.revert(smooth)(X), smooth(X))


def test_stacks_say_what_is_found_and_why_something_is_not():
    torch.manual_seed(0)
    wide = Block(width=4)
    wide.linear = nn.Linear(4, 4, bias=False)
    model = Net([wide, *(Block(i) for i in range(1, 4))])
    model.norms = nn.ModuleList([nn.LayerNorm(4), nn.LayerNorm(4)])
    first, run, norms = ct.stacks(model)
    assert str(run) == "layers[1-3]: Block, 84 parameters"
    assert (run.start, run.stop, run.reason) == (1, 4, "")
    assert "layers 0 and 1" in first.reason
    assert "bias" in first.reason
    assert "LayerNorm is a single module" in norms.reason
    made = ct.convert(model)
    assert torch.equal(made(X), model(X))
    assert len(ct.revert(ct.compress(made, ct.PiecewiseConstant(1), steps=1)).layers) == 2


def test_the_last_layer_and_lists_of_another_class_have_a_reason_too():
    class Own(nn.ModuleList):
        pass

    other = Block(3)
    other.linear = nn.Linear(4, 4, bias=False)
    model = Net([*(Block(i) for i in range(3)), other])
    run, last = ct.stacks(model)
    assert (run.start, run.stop, last.start, last.stop) == (0, 3, 3, 4)
    assert "layers 2 and 3" in last.reason
    model.layers = Own(model.layers)
    (own,) = ct.stacks(model)
    assert "Own is no plain nn.ModuleList or nn.Sequential" in own.reason


def test_layers_that_recur_in_groups_of_three():
    layers = [Block(i) for i in range(6)]
    for i in (2, 5):
        layers[i].linear = nn.Linear(4, 4, bias=False)
    model = Net(layers)
    (run,) = ct.stacks(model)
    assert (run.start, run.stop, run.period) == (0, 6, 3)
    made = ct.convert(model)
    assert torch.equal(made(X), model(X))
    small = ct.compress(made, ct.PiecewiseConstant(1), steps=1)
    assert [layer.linear.bias is None for layer in small.layers] == [False, False, True]
    assert torch.equal(ct.revert(small)(X), small(X))


def test_layers_keep_their_names():
    torch.manual_seed(0)
    names = OrderedDict((f"layer_{i}", Unit(adds=True)) for i in range(4))
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.Sequential(names)).eval()
    made = ct.convert(model)
    assert ct.revert(made).state_dict().keys() == model.state_dict().keys()
    small = ct.compress(made, ct.PiecewiseConstant(2), steps=2)
    assert list(ct.revert(small)[1]._modules) == ["layer_0", "layer_1"]


def test_no_dropout_is_dropout_of_rate_0():
    model = net()
    model.layers[0].dropout = nn.Identity()
    made = ct.convert(model)
    assert torch.equal(made(X), model(X))
    assert [layer.dropout.p for layer in made.layers] == [0.0, 0.1, 0.2, 0.30000000000000004]
    torch.manual_seed(1)
    expected = model.train()(X)
    torch.manual_seed(1)
    torch.testing.assert_close(made.train()(X), expected)


class Parts(nn.Module):
    """Takes its layers apart, and has a number for each."""

    def __init__(self, norm=nn.LayerNorm):
        super().__init__()
        self.layers = nn.ModuleList(nn.ModuleList([norm(4), nn.Linear(4, 4)]) for _ in range(3))
        self.gains = nn.Parameter(torch.tensor([1.0, 2.0, 3.0]))

    def forward(self, x):
        for (norm, linear), gain in zip(self.layers, self.gains, strict=False):
            x = x + gain * linear(norm(x))
        return x


def test_layers_that_the_model_takes_apart():
    torch.manual_seed(0)
    model = Parts()
    made = ct.convert(model)
    assert torch.equal(made(X), model(X))
    with pytest.warns(UserWarning, match=r"has 2 layers now.*an entry in 'gains' for each layer"):
        small = ct.compress(made, ct.PiecewiseConstant(2), steps=2)
    assert torch.equal(ct.revert(small)(X), small(X))
    with pytest.raises(ct.ModuleError, match="takes each ModuleList apart"):
        ct.heal(small, made, [X, X], steps=2)
    (run,) = ct.stacks(Parts(nn.BatchNorm1d))
    assert "state in it cannot be followed" in run.reason


def test_only_some_lists():
    model = nn.ModuleDict({"a": net(), "b": net()})
    made = ct.convert(nn.Sequential(model["a"], nn.Identity(), model["b"]), only="2.*")
    blocks = [name for name, part in made.named_modules() if isinstance(part, ct.ODEBlock)]
    assert blocks == ["2.layers.block0"]
    with pytest.raises(ct.ModuleError, match=r"only=\['c'\] names none.*layers"):
        ct.convert(net(), only="c")


def test_the_model_itself_is_changed_without_a_copy():
    model = net()
    expected, weight = model(X), model.layers[2].linear.weight
    made = ct.convert(model, copy=False)
    assert made is model
    assert torch.equal(made(X), expected)
    stack = made.layers.block0.field.layer.linear.weight
    assert weight.data_ptr() == stack[2].data_ptr()  # moved


def test_the_statistics_of_norms_are_updated_as_those_of_layers():
    torch.manual_seed(0)
    layers = [Unit(adds=True) for _ in range(3)]
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.Sequential(*layers), nn.Flatten()).double()
    made = ct.convert(model)
    x = torch.randn(2, 3, 4, 4, dtype=torch.float64)
    for _ in range(3):
        torch.testing.assert_close(made.train()(x), model.train()(x))
    plain = ct.revert(made)
    for key, value in model.state_dict().items():
        torch.testing.assert_close(plain.state_dict()[key], value)
    torch.testing.assert_close(plain.eval()(x), model.eval()(x))
    # Two steps that share a bucket, as a solve of the block updates it.
    shared = ct.compress(made, ct.PiecewiseConstant(1)).train()
    block = copy.deepcopy(shared[1].block0)
    shared(x)
    block(shared[0](x))
    for name, value in block.field.named_buffers():
        torch.testing.assert_close(shared[1].block0.field.get_buffer(name), value)


class Norms(nn.Module):
    """Layers with batch norm, called in one way or another."""

    def __init__(self, layers_of):
        super().__init__()
        layers = (nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)) for _ in range(6))
        self.layers = nn.ModuleList(Added(layer) for layer in layers)
        self.layers_of = layers_of

    def forward(self, x):
        for layer in self.layers_of(self.layers):
            x = layer(x)
        return x


class Added(nn.Module):
    def __init__(self, part):
        super().__init__()
        self.part = part

    def forward(self, x):
        return x + self.part(x)


def checkpointed(layers):
    return [lambda x, layer=layer: checkpoint(layer, x, use_reentrant=False) for layer in layers]


@pytest.mark.parametrize(
    "layers_of",
    [
        lambda layers: layers,
        lambda layers: (layers[i] for i in range(len(layers))),
        lambda layers: (layer for part in (layers[:3], layers[3:]) for layer in part),
        lambda layers: layers[:4],
        checkpointed,
    ],
    ids=["whole", "each", "parts", "some", "checkpoint"],
)
def test_statistics_of_layers_however_they_are_called(layers_of):
    torch.manual_seed(0)
    model = Norms(layers_of).double()
    made = ct.convert(model)
    for _ in range(2):
        x = torch.randn(8, 3, dtype=torch.float64, requires_grad=True)
        out, expected = made(x), model(x)
        torch.testing.assert_close(out, expected)
        out.sum().backward(), expected.sum().backward()
    plain = ct.revert(made).state_dict()
    for name, value in model.state_dict().items():
        if "running" in name:
            torch.testing.assert_close(plain[name], value)


def test_weights_are_read_anew_when_they_change():
    model = net()
    made = ct.convert(model)
    with torch.no_grad():
        made(X)
        for parameter in made.parameters():
            parameter.mul_(2)
        for parameter in model.parameters():
            parameter.mul_(2)
        assert torch.equal(made(X), model(X))
        made.load_state_dict(ct.convert(net()).state_dict(), assign=True)
        assert torch.equal(made(X), net()(X))
        assert torch.equal(made.double()(X.double()), net().double()(X.double()))


def test_evaluations_are_counted_and_the_block_agrees():
    made = ct.compress(ct.convert(net()), ct.PiecewiseConstant(2), steps=2)
    with ct.count_evaluations(made) as count:
        made(X)
    assert (count.forward, count.solves) == (2, 1)
    state = X
    for layer in made.layers:
        state, _ = layer(state)
    torch.testing.assert_close(made.layers.block0(X), state)
    assert torch.equal(ct.unroll(made)(X), made(X))


def test_fewer_functions_alone_remove_no_layer():
    small = ct.compress(ct.convert(net(4)), ct.PiecewiseConstant(2))
    with pytest.warns(UserWarning, match="share 2 sets of weights.*compress with steps=2"):
        assert len(ct.revert(small).layers) == 4
    with pytest.raises(ct.ArgumentError, match=r"continua\.unroll\(block\) writes out"):
        ct.revert(ct.convert(nn.Sequential(*[nn.Linear(2, 2) for _ in range(4)])))
