"""The image classifiers: their size, their shapes, and their way through every verb."""

import pytest
import torch
from torch import nn

import continua as ct
from continua.models import Stitch, continuous_net


def small_net(**changes):
    arguments = {
        "in_channels": 1,
        "classes": 10,
        "width": 4,
        "stages": 2,
        "basis": ct.PiecewiseConstant(4),
        "solver": ct.Euler(steps=4),
    }
    return ct.build(continuous_net, **arguments | changes)


def images(count=3, channels=1, pixels=8):
    return torch.randn(count, channels, pixels, pixels, generator=torch.Generator().manual_seed(1))


def lived_in(net):
    """The net after a few training forwards, its weights different at every depth."""
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for p in net.parameters():
            p += 0.05 * torch.randn(p.shape, generator=generator)
    net.train()
    for _ in range(3):
        net(torch.randn(16, 1, 8, 8, generator=generator))
    return net.eval()


@pytest.fixture
def net():
    torch.manual_seed(0)
    return lived_in(small_net())


@pytest.mark.parametrize("K", [1, 2, 4, 8, 16, 32])
def test_parameters_of_the_deep_network_of_the_paper(K):
    net = continuous_net(basis=ct.PiecewiseConstant(K), solver=ct.Euler(steps=K))
    assert sum(p.numel() for p in net.parameters()) == 78_074 + 97_216 * K


@pytest.mark.parametrize("stages", [1, 2, 3])
@pytest.mark.parametrize("pixels", [8, 28, 32])
def test_any_image_size(stages, pixels):
    net = continuous_net(
        width=4, stages=stages, basis=ct.PiecewiseConstant(2), solver=ct.Euler(steps=2), classes=7
    )
    assert net(images(2, 3, pixels)).shape == (2, 7)


def test_stages_double_the_width_and_halve_the_resolution():
    net = continuous_net(
        width=4, stages=3, basis=ct.Constant(), solver=ct.Euler(steps=1), in_channels=1
    )
    z, shapes = images(2, 1, 16), []
    for name, module in net.named_children():
        z = module(z)
        if name.startswith("block"):
            shapes.append(tuple(z.shape[1:]))
    assert shapes == [(4, 16, 16), (8, 8, 8), (16, 4, 4)]


def test_it_is_a_resnet_with_euler_and_one_bucket_per_step():
    torch.manual_seed(0)
    K = 3
    net = small_net(
        stages=1, basis=ct.PiecewiseConstant(K), solver=ct.Euler(steps=K), epsilon=float(K)
    )
    lived_in(net)
    block = net.block1
    z = expected = torch.randn(2, 4, 8, 8)
    for k in range(K):
        expected = expected + block.at(k + 0.5)(expected)
    torch.testing.assert_close(block(z), expected)


def test_epsilon_is_the_length_of_the_span():
    assert small_net(epsilon=2.5).block1.span == (0.0, 2.5)


def test_first_weights_are_the_same_at_every_depth_and_fit_the_fan_out():
    torch.manual_seed(0)
    net = continuous_net(basis=ct.PiecewiseConstant(4), solver=ct.Euler(steps=4))
    weight = net.block3.field[2].weight
    assert weight.shape == (4, 64, 64, 3, 3)
    assert (weight == weight[:1]).all()
    assert weight.std().item() == pytest.approx((2 / (64 * 9)) ** 0.5, rel=0.02)


def test_no_convolution_has_a_bias():
    assert all(m.bias is None for m in small_net().modules() if isinstance(m, nn.Conv2d))


def test_options_reach_their_layers():
    net = small_net(activation="gelu", head_activation=True, momentum=0.25, stitch_scale=0.5)
    layers = list(net.modules())
    assert not any(isinstance(m, nn.ReLU) for m in layers)
    assert isinstance(net.head[1], nn.GELU)
    assert {m.momentum for m in layers if isinstance(m, nn.BatchNorm2d)} == {0.25}
    assert {m.scale for m in layers if isinstance(m, Stitch)} == {0.5}


def test_state_may_have_its_own_basis():
    net = small_net(basis=ct.PiecewiseLinear(3), state_basis=ct.PiecewiseConstant(8))
    assert set(net.block1.expansion.weights.values()) == {ct.PiecewiseLinear(3)}
    assert set(net.block1.expansion.state.values()) == {ct.PiecewiseConstant(8)}


def test_a_stitch_that_changes_nothing_has_no_shortcut_layer():
    x = torch.randn(2, 4, 8, 8)
    same = Stitch(4, 4, scale=0.5).eval()
    assert isinstance(same.shortcut, nn.Identity)
    torch.testing.assert_close(same(x), x + 0.5 * same.residual(x))
    wider, smaller = Stitch(4, 6), Stitch(4, 4, stride=2)
    assert wider(x).shape == (2, 6, 8, 8)
    assert smaller(x).shape == (2, 4, 4, 4)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"width": 0}, "width is a whole number of at least 1, not 0"),
        ({"stages": 1.5}, "stages is a whole number of at least 1, not 1.5"),
        ({"classes": True}, "classes is a whole number of at least 1, not True"),
        ({"activation": "tanh"}, "activation is 'relu' or 'gelu', not 'tanh'"),
        ({"epsilon": 0.0}, "epsilon, the length of the span, is positive, not 0.0"),
        ({"epsilon": float("nan")}, "epsilon, the length of the span, is positive, not nan"),
    ],
)
def test_what_cannot_work_is_refused(changes, said):
    with pytest.raises(ct.ArgumentError, match=said):
        small_net(**changes)


def test_refine_keeps_the_functions(net):
    fine = ct.refine(net)
    assert set(fine.block1.expansion.bases.values()) == {ct.PiecewiseConstant(8)}
    assert fine.block2.solver == ct.Euler(steps=8)
    assert max(change.error for change in ct.compare(net, fine).tensors) < 1e-6


def test_compress_makes_it_smaller(net):
    small = ct.compress(net, ct.PiecewiseConstant(2), steps=2)
    count = [sum(p.numel() for p in m.parameters()) for m in (net, small)]
    in_blocks = sum(p.numel() for b in (net.block1, net.block2) for p in b.parameters())
    assert count[1] == count[0] - in_blocks // 2
    assert small(images()).shape == (3, 10)


def test_unroll_leaves_nothing_of_continua(net):
    plain = ct.unroll(net)
    assert not [m for m in plain.modules() if type(m).__module__.startswith("continua")]
    torch.testing.assert_close(plain(images()), net(images()), atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    "change", [lambda m: m, ct.refine, lambda m: ct.compress(m, ct.Fourier(1))]
)
def test_save_and_load(net, change, tmp_path):
    model = change(net)
    again = ct.load(ct.save(model, tmp_path / "model"))
    assert torch.equal(again(images()), model(images()))


@pytest.mark.parametrize("mode", ["train", "eval"])
def test_compiles_without_graph_breaks(mode):
    torch.manual_seed(0)
    net = small_net(stages=1, basis=ct.PiecewiseConstant(2), solver=ct.Euler(steps=2))
    net.train(mode == "train")
    torch._dynamo.reset()
    compiled = torch.compile(net, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(images()), net(images()), atol=1e-5, rtol=1e-5)


def test_exports_with_a_free_batch_size(net):
    batch = torch.export.Dim("batch", min=1, max=64)
    program = torch.export.export(net, (images(3),), dynamic_shapes=({0: batch},))
    for count in (1, 5):
        x = images(count)
        torch.testing.assert_close(program.module()(x), net(x), atol=1e-5, rtol=1e-5)
