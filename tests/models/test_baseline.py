"""The discrete residual networks: their size, and that they are the continuous ones."""

import pytest
import torch
from torch import nn

import continua as ct
from continua.models import continuous_net, resnet, wide_resnet
from continua.transform import blocks


def count(net):
    return sum(p.numel() for p in net.parameters())


def same_weights(discrete, continuous):
    """Give the discrete network the weights and statistics of the continuous one, in place."""
    state = discrete.state_dict()
    for name, value in continuous.state_dict().items():
        if not name.startswith("block"):
            state[name].copy_(value)
            continue
        block, _, rest = name.removeprefix("block").partition(".field.")
        for key, target in state.items():
            if key.startswith(f"stage{block}.") and key.endswith(f".unit.{rest}"):
                k = int(key.split(".")[1])
                target.copy_(value if value.dim() == 0 else value[k])


@pytest.mark.parametrize(("units", "millions"), [(2, 0.27), (8, 0.85)])
def test_parameters_of_the_paper(units, millions):
    net = resnet(units=units)
    assert count(net) == 73_402 + 97_216 * units
    assert round(count(net) / 1e6, 2) == millions


@pytest.mark.parametrize("units", [1, 2, 8])
def test_as_many_parameters_as_the_continuous_network(units):
    net = continuous_net(basis=ct.PiecewiseConstant(units), solver=ct.Euler(steps=units))
    assert count(resnet(units=units, first_stitch=True)) == count(net)
    assert count(net) - count(resnet(units=units)) == count(net.stitch1)


def test_parameters_of_the_wide_network_of_the_paper():
    with torch.device("meta"):
        ten, hundred = wide_resnet(classes=10), wide_resnet()
    wide = continuous_net(
        width=64, classes=100, basis=ct.PiecewiseConstant(1), solver=ct.Euler(steps=1)
    )
    assert count(ten) == 13_628_362
    assert round(count(ten) / 1e6, 2) == 13.63
    assert count(hundred) == 13_651_492
    block = sum(count(b) for b in blocks(wide).values())
    assert count(hundred) == count(wide) + 7 * block


@pytest.mark.parametrize("mode", ["train", "eval"])
def test_the_same_function_with_the_same_weights(mode):
    torch.manual_seed(0)
    K, arguments = 3, {"width": 4, "in_channels": 1, "stages": 2, "stitch_scale": 0.5}
    continuous = continuous_net(
        basis=ct.PiecewiseConstant(K), solver=ct.Euler(steps=K), epsilon=float(K), **arguments
    ).double()
    with torch.no_grad():
        for p in continuous.parameters():
            p += 0.1 * torch.randn_like(p)
        for _ in range(2):
            continuous(torch.randn(8, 1, 8, 8, dtype=torch.float64))
    discrete = resnet(units=K, first_stitch=True, **arguments).double()
    same_weights(discrete, continuous)
    x = torch.randn(8, 1, 8, 8, dtype=torch.float64)
    for net in (discrete, continuous):
        net.train(mode == "train")
    torch.testing.assert_close(discrete(x), continuous(x), atol=1e-12, rtol=1e-12)
    # A training forward leaves the same statistics behind.
    before = {name: value.clone() for name, value in discrete.state_dict().items()}
    same_weights(discrete, continuous)
    for name, value in discrete.state_dict().items():
        torch.testing.assert_close(value, before[name], atol=1e-12, rtol=1e-12)


def test_a_stage_is_a_sum_of_residuals():
    net = resnet(units=2, width=4).eval()
    x = torch.randn(1, 4, 8, 8)
    one, two = net.stage1
    middle = x + one.unit(x)
    torch.testing.assert_close(net.stage1(x), middle + two.unit(middle))


def test_options_reach_their_layers():
    net = resnet(units=1, width=4, activation="gelu", head_activation=True, momentum=0.25)
    assert not any(isinstance(m, nn.ReLU) for m in net.modules())
    assert isinstance(net.head[1], nn.GELU)
    assert {m.momentum for m in net.modules() if isinstance(m, nn.BatchNorm2d)} == {0.25}


@pytest.mark.parametrize(
    ("factory", "changes", "said"),
    [
        (resnet, {"units": 0}, "units is a whole number of at least 1, not 0"),
        (resnet, {"units": 1, "activation": "elu"}, "activation is 'relu' or 'gelu', not 'elu'"),
        (wide_resnet, {"alpha": 1.5}, "alpha is a whole number of at least 1, not 1.5"),
    ],
)
def test_what_cannot_work_is_refused(factory, changes, said):
    with pytest.raises(ct.ArgumentError, match=said):
        factory(**changes)
