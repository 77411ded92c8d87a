"""Facts of the three papers and their code that any implementation must reproduce."""

import math

import pytest
import torch
from torch import nn

import continua as ct
from continua.models import continuous_net
from nets import conv_unit


def count(*modules):
    return sum(p.numel() for module in modules for p in module.parameters())


# -- parameter counts --------------------------------------------------------------------------


def dissecting_field(channels, hidden, out):
    """The field of the CIFAR-10 experiments of Dissecting Neural ODEs."""
    return nn.Sequential(
        nn.GroupNorm(channels, channels),
        nn.Conv2d(channels, hidden, 3, padding=1, bias=False),
        nn.Softplus(),
        nn.Conv2d(hidden, hidden, 3, padding=1, bias=False),
        nn.Softplus(),
        nn.GroupNorm(hidden, hidden),
        nn.Conv2d(hidden, out, 1),
    )


def dissecting_head(channels, kept):
    return nn.Sequential(
        nn.Conv2d(channels, kept, 1),
        nn.AdaptiveAvgPool2d(4),
        nn.Flatten(),
        nn.Linear(16 * kept, 10),
    )


@pytest.mark.parametrize(
    ("shape", "stem", "head", "expected"),
    [
        ((3, 62, 3), nn.Identity(), (3, 3), 37_091),
        ((42, 42, 42), nn.Identity(), (42, 6), 34_954),
        ((42, 42, 42), nn.Conv2d(3, 42, 3, padding=1, bias=False), (42, 6), 36_088),
        ((42, 42, 21), nn.Conv2d(3, 21, 3, padding=1, bias=False), (42, 6), 34_618),
    ],
    ids=["vanilla", "0-augmented", "input layer", "second order"],
)
def test_counts_of_dissecting_neural_odes(shape, stem, head, expected):
    block = ct.ODEBlock(dissecting_field(*shape), ct.Constant(), ct.RK4(steps=2))
    assert count(stem, block, dissecting_head(*head)) == expected


def test_counts_of_the_toy_models():
    controlled = nn.Sequential(nn.Linear(4, 32), nn.Softplus(), nn.Linear(32, 2))
    assert count(ct.ODEBlock(controlled), nn.Linear(2, 1)) == 229
    tracking = nn.Sequential(nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 2))
    four_functions = {"0.*": ct.Legendre(4), "*": ct.Constant()}  # two cosines and two sines
    assert count(ct.ODEBlock(tracking, four_functions)) == 898
    for inputs, expected in ((2, 257), (1, 193)):
        field = nn.Sequential(nn.Linear(inputs, 64), nn.Tanh(), nn.Linear(64, 1))
        assert count(ct.ODEBlock(field)) == expected


@pytest.mark.parametrize("d", [1, 4, 10])
def test_coefficients_per_weight_of_nanode(d):
    for basis, expected in (
        (ct.Fourier(d, period=2 * math.pi), 2 * d + 1),
        (ct.PiecewiseConstant(d), d),
        (ct.Polynomial(d), d),
    ):
        assert count(ct.ODEBlock(nn.Linear(3, 3), basis)) == 12 * expected


# -- the reference's own tests -----------------------------------------------------------------


@pytest.mark.parametrize("basis", [ct.PiecewiseConstant(3), ct.Fourier(1)], ids=repr)
def test_a_forward_keeps_shapes_and_state_keys(basis):
    block = ct.ODEBlock(conv_unit(), basis, ct.Midpoint(steps=3))
    before = {name: value.shape for name, value in block.state_dict().items()}
    x = torch.randn(2, 4, 6, 6)
    assert block(x).shape == x.shape
    assert {name: value.shape for name, value in block.state_dict().items()} == before
    without = ct.ODEBlock(nn.Conv2d(4, 4, 3, padding=1), basis, ct.Midpoint(steps=3))
    assert not without.expansion.state


@pytest.mark.parametrize(
    ("basis", "solver"),
    [
        (ct.PiecewiseConstant(1), ct.Euler(steps=1)),
        (ct.PiecewiseLinear(1), ct.Midpoint(steps=1)),
        (ct.Polynomial(2), ct.Euler(steps=1)),
    ],
    ids=repr,
)
def test_constant_images_are_learned_through_two_refinements(basis, solver):
    torch.manual_seed(0)
    labels = torch.arange(4).repeat(8)
    images = (labels.float() / 4).reshape(-1, 1, 1, 1).expand(-1, 1, 8, 8).contiguous()
    model = continuous_net(
        in_channels=1, classes=4, width=4, stages=1, basis=basis, solver=solver, momentum=0.5
    )
    for level in range(3):
        model = ct.refine(model) if level else model
        optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
        for _ in range(30):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images), labels).backward()
            optimizer.step()
    assert (model.eval()(images).argmax(1) == labels).float().mean() == 1.0


def test_the_learning_rate_goes_on_by_epoch_through_a_refinement():
    """SPEC 1.16: 0.2 times 0.1 at epochs 30, 10, 20, given unsorted; the optimizer is made anew."""
    expected = {1: 0.2, 9: 0.2, 10: 0.02, 19: 0.02, 20: 0.002, 29: 0.002, 30: 2e-4, 45: 2e-4}
    model = ct.ODEBlock(nn.Linear(2, 2), ct.PiecewiseConstant(1), ct.Euler(steps=1))

    def made(epoch):
        optimizer = torch.optim.SGD([{"params": model.parameters(), "initial_lr": 0.2}], lr=0.2)
        return torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda e: 0.1 ** sum(e >= m for m in (30, 10, 20)), last_epoch=epoch - 1
        )

    schedule = made(0)
    for epoch in range(46):
        if epoch in (5, 15):
            model = ct.refine(model)
            schedule = made(epoch)
        if epoch in expected:
            assert schedule.get_last_lr()[0] == pytest.approx(expected[epoch])
        schedule.optimizer.step()
        schedule.step()
