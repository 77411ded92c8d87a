"""Normalisation inside the residual units, and the gain that can stand in for it."""

import pytest
import torch
from torch import nn

import continua as ct
from continua.models import Norm, continuous_net

K = 3


def net(**changes):
    torch.manual_seed(0)
    arguments = {
        "in_channels": 1,
        "width": 4,
        "stages": 2,
        "basis": ct.PiecewiseConstant(K),
        "solver": ct.Euler(steps=K),
    }
    return ct.build(continuous_net, **arguments | changes)


def images(count=6):
    return torch.randn(count, 1, 8, 8, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("skip_init", [False, True])
@pytest.mark.parametrize("norm", Norm.__args__)
def test_every_choice_trains_and_goes_through_the_verbs(norm, skip_init, tmp_path):
    model = net(norm=norm, skip_init=skip_init)
    with torch.no_grad():
        for p in model.parameters():
            p += 0.1 * torch.randn_like(p)
    model(images()).square().mean().backward()
    assert all(p.grad.isfinite().all() and p.grad.abs().max() > 0 for p in model.parameters())
    model.eval()
    y = model(images())
    torch.testing.assert_close(ct.unroll(model)(images()), y, atol=1e-4, rtol=1e-4)
    fine = ct.refine(model)
    assert max(change.error for change in ct.compare(model, fine).tensors) < 1e-6
    small = ct.compress(model, ct.PiecewiseConstant(1))
    assert small(images()).isfinite().all()
    assert torch.equal(ct.load(ct.save(model, tmp_path / "model"))(images()), y)


@pytest.mark.parametrize(
    ("norm", "layer"),
    [
        ("batch", nn.BatchNorm2d),
        ("shared", nn.BatchNorm2d),
        ("group", nn.GroupNorm),
        ("none", nn.Identity),
    ],
)
def test_which_layer_stands_in_blocks_and_stitches(norm, layer):
    model = net(norm=norm)
    for unit in (model.block2.field, model.stitch2.residual):
        assert isinstance(unit[0], layer)
        assert isinstance(unit[3], layer)
    for kept in (model.stem[1], model.stitch2.shortcut[1], model.head[0]):
        assert isinstance(kept, nn.BatchNorm2d)


def test_shared_statistics_are_one_for_all_depths_and_mix_them():
    model = net(norm="shared", stages=1)
    block = model.block1
    assert set(block.expansion.state.values()) == {ct.Constant()}
    assert set(block.expansion.weights.values()) == {ct.PiecewiseConstant(K)}
    assert block.field[0].weight.shape == (K, 4)
    assert block.field[0].running_mean.shape == (1, 4)
    z = torch.randn(6, 4, 8, 8)
    means, state = [], z
    with torch.no_grad():
        for k in range(K):
            means.append(state.mean((0, 2, 3)))
            state = state + block.at((k + 0.5) / K).train()(state) / K
        block(z)
    torch.testing.assert_close(block.field[0].running_mean[0], 0.1 * torch.stack(means).mean(0))


def test_batch_norm_has_statistics_for_each_depth():
    assert net().block1.field[0].running_mean.shape == (K, 4)


def test_groups_divide_the_channels():
    assert net(norm="group", width=12).block1.field[0].num_groups == 4
    assert net(norm="group", width=16).block1.field[0].num_groups == 8
    assert net(norm="group", width=5).block1.field[0].num_groups == 1


@pytest.mark.parametrize("basis", [ct.PiecewiseConstant(K), ct.Fourier(1), ct.Chebyshev(4)])
def test_with_skip_init_a_block_starts_as_the_identity(basis):
    model = net(norm="none", skip_init=True, basis=basis)
    z = torch.randn(2, 4, 8, 8)
    assert torch.equal(model.block1(z), z)
    gain = model.block1.field[6].gain
    assert gain.shape == (basis.size,)
    # Its gradient is not zero, so it leaves the identity.
    model(images()).square().mean().backward()
    assert gain.grad.abs().max() > 0


def test_the_gain_multiplies_the_unit_at_each_depth():
    model = net(norm="none", skip_init=True, stages=1)
    with torch.no_grad():
        model.block1.field[6].gain.copy_(torch.tensor([1.0, 2.0, -1.0]))
    z = expected = torch.randn(2, 4, 8, 8)
    for gain in (1.0, 2.0, -1.0):
        expected = expected + gain / K * model.block1.at(0.1)[:6](expected)
    torch.testing.assert_close(model.block1(z), expected, atol=1e-4, rtol=1e-4)


def test_what_cannot_work_is_refused():
    with pytest.raises(ct.ArgumentError, match=r"norm is 'batch', 'group', .* not 'layer'"):
        net(norm="layer")
    with pytest.raises(ct.ArgumentError, match=r"state_basis=PiecewiseConstant\(2\) has no use"):
        net(norm="shared", state_basis=ct.PiecewiseConstant(2))
