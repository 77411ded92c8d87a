"""Flow matching, and a flow as a module."""

import math

import pytest
import torch
from torch import nn
from torch.distributions import (
    Categorical,
    Independent,
    MixtureSameFamily,
    MultivariateNormal,
    Normal,
)

import continua as ct


def normal(dimensions=2):
    return Independent(Normal(torch.zeros(dimensions), torch.ones(dimensions)), 1)


class Straight(ct.Field):
    """The best field where data is one point m: the straight lines (z - m) / s."""

    def forward(self, s, z, x):
        return (z - torch.tensor([2.0, -1.0])) / s


def test_the_best_field_has_no_loss():
    flow = ct.ContinuousFlow(Straight(), normal())
    x = torch.tensor([2.0, -1.0]).expand(64, 2)
    assert flow.matching_loss(x).item() == pytest.approx(0.0, abs=1e-8)


def test_the_loss_of_a_field_that_is_zero_is_the_mean_squared_distance():
    torch.manual_seed(0)
    zero = nn.Linear(2, 2)
    nn.init.zeros_(zero.weight), nn.init.zeros_(zero.bias)
    x = torch.full((20000, 2), 3.0)
    loss = ct.ContinuousFlow(zero, normal()).matching_loss(x)
    assert loss.item() == pytest.approx(10.0, rel=0.02)  # E (c - 3)^2 = 1 + 9


def test_training_learns_a_gaussian():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 1))
    flow = ct.ContinuousFlow(net, normal(1), basis=ct.Legendre(4), solver=ct.RK4(steps=8))
    data = Normal(2.0, 0.5)
    optimizer = torch.optim.Adam(flow.parameters(), 1e-2)
    for _ in range(400):
        optimizer.zero_grad()
        flow.matching_loss(data.sample((256, 1))).backward()
        optimizer.step()
    x = data.sample((500, 1))
    gap = (data.log_prob(x)[:, 0] - flow.log_prob(x)).mean()
    assert abs(gap.item()) < 0.1


def test_every_coefficient_gets_a_gradient_and_the_context_is_seen():
    net = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 2))
    basis = ct.PiecewiseConstant(4)
    flow = ct.ContinuousFlow(ct.DataControl(net), normal(), basis=basis, context="given")
    flow.matching_loss(torch.randn(32, 2), torch.randn(32, 3)).backward()
    for parameter in flow.parameters():
        assert (parameter.grad.flatten(1).abs().sum(1) > 0).all()


def test_with_constant_weights_every_sample_has_its_own_depth():
    class Seen(ct.Field):
        def __init__(self):
            super().__init__()
            self.net = nn.Linear(3, 2)

        def forward(self, s, z, x):
            assert s.dim() == 0  # as in a solve
            return self.net(torch.cat([z, s.expand(len(z), 1)], 1))

    torch.manual_seed(0)
    flow, x = ct.ContinuousFlow(Seen(), normal()), torch.randn(32, 2)
    loss = flow.matching_loss(x)
    loss.backward()
    weight, bias = (parameter[0] for parameter in flow.block.field.parameters())
    assert all((parameter.grad.abs() > 0).all() for parameter in flow.parameters())
    torch.manual_seed(0)
    Seen(), torch.randn(32, 2)
    c = normal().sample((32,))
    s = ((torch.arange(32) + torch.rand(32)) / 32).unsqueeze(1)
    seen = torch.cat([x + s * (c - x), s], 1) @ weight.T + bias
    assert torch.allclose(loss, (seen - (c - x)).square().mean(), atol=1e-5)


@pytest.mark.parametrize("depths", [0, -1, 1.5, True])
def test_bad_depths(depths):
    with pytest.raises(ct.ArgumentError, match="depths"):
        ct.ContinuousFlow(nn.Linear(2, 2), normal()).matching_loss(torch.zeros(3, 2), depths=depths)


def test_no_matching_where_the_field_sees_the_sample():
    flow = ct.ContinuousFlow(ct.DataControl(nn.Linear(4, 2)), normal(), context="sample")
    with pytest.raises(ct.ArgumentError, match="context='sample'"):
        flow.matching_loss(torch.zeros(3, 2))


def test_the_prior_follows_the_module():
    flow = ct.ContinuousFlow(nn.Linear(2, 2), normal()).double()
    assert flow.sample((3,)).dtype is torch.float64
    assert flow.log_prob(torch.zeros(3, 2, dtype=torch.float64)).dtype is torch.float64
    meta = flow.to("meta")
    assert meta.prior.base_dist.loc.device.type == "meta"


def test_a_mixture_as_prior_follows_too():
    parts = MultivariateNormal(torch.randn(3, 2), torch.eye(2).expand(3, 2, 2))
    mixture = MixtureSameFamily(Categorical(torch.ones(3)), parts)
    flow = ct.ContinuousFlow(nn.Linear(2, 2), mixture).double()
    assert flow.prior.component_distribution.loc.dtype is torch.float64
    flow.log_prob(torch.zeros(2, 2, dtype=torch.float64))


def test_calling_a_flow_gives_the_log_density():
    flow, x = ct.ContinuousFlow(nn.Linear(2, 2), normal()), torch.randn(4, 2)
    assert torch.equal(flow(x), flow.log_prob(x))


def test_a_flow_without_context_does_not_show_its_field_the_input():
    flow = ct.ContinuousFlow(ct.DataControl(nn.Linear(4, 2)), normal())
    with pytest.raises(ct.ShapeError, match=r"context of \[3, 0\]"):
        flow.log_prob(torch.zeros(3, 2))


def test_slope_is_the_field_at_one_depth():
    block = ct.ODEBlock(nn.Linear(2, 2), ct.Legendre(3), init="independent")
    z = torch.randn(5, 2)
    slope = block.slope(0.3, z)
    assert torch.allclose(slope, block.at(0.3)(z), atol=1e-6)
    slope.sum().backward()
    assert block.field.weight.grad.shape == (3, 2, 2)
    with pytest.raises(ct.ArgumentError, match="finite"):
        block.slope(math.nan, z)
