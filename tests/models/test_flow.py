"""Densities that a flow carries."""

import copy

import pytest
import torch
from torch import nn
from torch.distributions import Independent, MultivariateNormal, Normal

import continua as ct

FINE = ct.Dopri8(1e-9, 1e-9)


def normal(dim=2, mean=0.0):
    return Independent(Normal(torch.full((dim,), mean).double(), torch.ones(dim).double()), 1)


def net(inputs=2, outputs=2):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(inputs, 8), nn.Tanh(), nn.Linear(8, outputs)).double()


def mass(log_prob, extent=9.0, count=181):
    line = torch.linspace(-extent, extent, count).double()
    points = torch.cartesian_prod(line, line)
    return float(log_prob(points).exp().sum()) * (2 * extent / (count - 1)) ** 2


def test_a_linear_flow_has_a_closed_form():
    """dz/ds = A z: z(1) = exp(A) x, so x is normal with covariance exp(-A) exp(-A)^T."""
    matrix = torch.tensor([[0.3, -0.5], [0.2, -0.4]]).double()
    field = nn.Linear(2, 2, bias=False).double()
    with torch.no_grad():
        field.weight.copy_(matrix)
    flow = ct.ContinuousFlow(field, normal(), solver=FINE)
    back = torch.linalg.matrix_exp(-matrix)
    expected = MultivariateNormal(torch.zeros(2).double(), back @ back.T)
    x = torch.randn(7, 2).double()
    torch.testing.assert_close(flow.log_prob(x), expected.log_prob(x), rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("basis", [ct.Constant(), ct.PiecewiseConstant(2), ct.Fourier(1)], ids=repr)
def test_the_density_integrates_to_one(basis):
    flow = ct.ContinuousFlow(net(), normal(), basis=basis, solver=ct.Dopri5(1e-6, 1e-6))
    with torch.no_grad():
        for p in flow.parameters():
            p.add_(0.2 * torch.randn_like(p))
        assert mass(flow.log_prob) == pytest.approx(1, abs=1e-3)


def test_a_field_that_sees_the_sample():
    """The trace alone would be wrong here: the total derivative counts."""
    field = ct.DataControl(net(4))
    flow = ct.ContinuousFlow(field, normal(), context="sample", solver=ct.Dopri5(1e-6, 1e-6))
    with torch.no_grad():
        assert mass(flow.log_prob, extent=8.0, count=121) == pytest.approx(1, abs=1e-3)
    wrong = ct.ContinuousFlow(field, normal(), context="given", solver=ct.Dopri5(1e-6, 1e-6))
    c = torch.randn(4, 2).double()
    x = flow._carried(c)[0].detach()
    assert not torch.allclose(wrong.log_prob(x, c), flow.log_prob(x), atol=1e-3)


def test_the_density_of_a_sample_is_that_of_its_origin():
    flow = ct.ContinuousFlow(ct.DataControl(net(4)), normal(), context="sample", solver=FINE)
    c = torch.randn(5, 2).double()
    x, jacobian = flow._carried(c)
    expected = normal().log_prob(c) - torch.linalg.slogdet(jacobian)[1]
    torch.testing.assert_close(flow.log_prob(x.detach()), expected, rtol=1e-5, atol=1e-5)


GRADIENTS = [ct.Backprop(), ct.Checkpoint(), ct.Adjoint(), ct.Adjoint("backsolve")]


@pytest.mark.parametrize("gradient", GRADIENTS, ids=repr)
@pytest.mark.parametrize("context", ["none", "given", "sample"])
def test_gradients_by_finite_differences(gradient, context):
    field = net() if context == "none" else ct.DataControl(net(4))
    flow = ct.ContinuousFlow(field, normal(), context=context, solver=FINE, gradient=gradient)
    x, given = torch.randn(3, 2).double(), torch.randn(3, 2).double()

    def loss():
        return flow.log_prob(x, given if context == "given" else None).sum()

    weight = next(iter(flow.parameters()))
    (found,) = torch.autograd.grad(loss(), [weight])
    direction = torch.ones_like(weight)
    ends = []
    for sign in (1, -1):
        with torch.no_grad():
            weight.add_(direction, alpha=sign * 1e-4)
            ends.append(loss())
            weight.sub_(direction, alpha=sign * 1e-4)
    slope = float(ends[0] - ends[1]) / 2e-4
    assert float(found.sum()) == pytest.approx(slope, rel=1e-3, abs=1e-4)


@pytest.mark.parametrize("noise", ["rademacher", "gaussian"])
def test_hutchinson_is_right_on_average(noise):
    field = net()
    exact = ct.ContinuousFlow(copy.deepcopy(field), normal(), solver=ct.RK4(steps=8))
    estimate = ct.ContinuousFlow(
        field, normal(), trace="hutchinson", noise=noise, solver=ct.RK4(steps=8)
    )
    x = torch.randn(1, 2).double().expand(4000, 2)
    with torch.no_grad():
        found = estimate.log_prob(x)
        wanted = exact.log_prob(x[:1])
    error = float(found.std()) / len(found) ** 0.5
    assert float(found.std()) > 0
    assert float(found.mean()) == pytest.approx(float(wanted), abs=5 * error)


def test_hutchinson_takes_the_noise_that_it_is_given():
    flow = ct.ContinuousFlow(net(), normal(), trace="hutchinson", solver=ct.RK4(steps=8))
    x = torch.randn(5, 2).double()
    noise = torch.randn(5, 2).double()
    found = flow.log_prob(x, noise=noise)
    assert torch.equal(found, flow.log_prob(x, noise=noise))
    assert not torch.allclose(found, flow.log_prob(x, noise=2 * noise))
    with pytest.raises(ct.ShapeError, match=r"noise has the shape of the samples, \[5, 2\]"):
        flow.log_prob(x, noise=noise[:, :1])
    exact = ct.ContinuousFlow(net(), normal())
    with pytest.raises(ct.ArgumentError, match="trace='hutchinson' only"):
        exact.log_prob(x, noise=noise)


def test_samples_have_the_density():
    torch.manual_seed(0)
    flow = ct.ContinuousFlow(net(), normal(), solver=ct.Dopri5(1e-6, 1e-6))
    x = flow.sample((4000,))
    assert x.shape == (4000, 2)
    line = torch.linspace(-8, 8, 161).double()
    points = torch.cartesian_prod(line, line)
    with torch.no_grad():
        weights = flow.log_prob(points).exp() * 0.01
    mean = (weights.unsqueeze(1) * points).sum(0)
    torch.testing.assert_close(x.mean(0), mean, rtol=0, atol=0.08)


def test_conditional_flows_and_priors():
    def prior(context):
        return Independent(Normal(context[:, :2], torch.ones(len(context), 2).double()), 1)

    flow = ct.ContinuousFlow(ct.DataControl(net(5)), prior, context="given", solver=FINE)
    context = torch.randn(3, 3).double()
    assert flow.sample((4,), context).shape == (4, 3, 2)
    assert flow.log_prob(torch.randn(3, 2).double(), context).shape == (3,)
    fixed = ct.ContinuousFlow(ct.DataControl(net(5)), normal(), context="given", solver=FINE)
    assert fixed.sample((4,), context).shape == (4, 3, 2)
    assert fixed.rsample((), context).requires_grad


@pytest.mark.parametrize("kind", ["kinetic", "jacobian"])
def test_regularisers(kind):
    field = nn.Linear(2, 2).double()
    flow = ct.ContinuousFlow(field, normal(), solver=FINE)
    x = torch.randn(4, 2).double()
    log_prob, cost = flow.costs(x, kind)
    torch.testing.assert_close(log_prob, flow.log_prob(x), rtol=1e-6, atol=1e-6)
    assert cost.shape == (4,)
    assert (cost > 0).all()
    torch.autograd.grad(cost.sum(), list(flow.parameters()), allow_unused=True)


def test_like_a_distribution():
    flow = ct.ContinuousFlow(net(), normal())
    assert flow.has_rsample
    assert flow.event_shape == (2,)
    assert flow.sample().shape == (2,)
    assert flow.sample((0,)).shape == (0, 2)


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda: ct.ContinuousFlow(net(), normal(), trace="guess"), "trace is one of"),
        (lambda: ct.ContinuousFlow(net(), normal(), noise="pink"), "noise is one of"),
        (lambda: ct.ContinuousFlow(net(), Normal(0.0, 1.0)), "distribution on vectors"),
        (lambda: ct.ContinuousFlow(net(), normal(), context="given"), "reads its context"),
        (lambda: ct.ContinuousFlow(net(), lambda c: normal()), "needs context='given' or 'sample'"),
        (lambda: ct.ContinuousFlow(net(), normal()).log_prob(torch.ones(2)), r"\[B, D\]"),
        (
            lambda: ct.ContinuousFlow(net(), normal()).log_prob(
                torch.ones(2, 2).double(), torch.ones(2, 1)
            ),
            "takes no context",
        ),
        (
            lambda: ct.ContinuousFlow(ct.DataControl(net(4)), normal(), context="given").log_prob(
                torch.ones(2, 2).double()
            ),
            "give a context",
        ),
        (
            lambda: ct.ContinuousFlow(ct.DataControl(net(4)), normal(), context="given").log_prob(
                torch.ones(2, 2).double(), torch.ones(3, 2).double()
            ),
            "need 2 contexts, not 3",
        ),
        (
            lambda: ct.ContinuousFlow(ct.DataControl(net(4)), normal(), context="given").sample(),
            "give sample a context",
        ),
        (
            lambda: ct.ContinuousFlow(
                nn.Linear(2, 2).double(), normal(), solver=ct.Dopri5(1e-6, 1e-6, max_steps=1)
            ).sample((3,)),
            "max_steps",
        ),
    ],
)
def test_mistakes(act, message):
    with pytest.raises(ct.ContinuaError, match=message):
        act()


def test_a_map_that_does_not_reach_a_sample():
    class Square(ct.Field):
        """Carries c to its square, so that nothing is carried below zero."""

        def forward(self, s, z, x):
            return x - x**2

    flow = ct.ContinuousFlow(Square(), normal(1), context="sample", solver=ct.Dopri5(1e-6, 1e-6))
    assert flow.log_prob(torch.tensor([[0.25]])).isfinite()
    with pytest.raises(ct.SolveError, match=r"reaches sample 1 only .* \(1 of 2 samples\)"):
        flow.log_prob(torch.tensor([[0.25], [-1.0]]))
