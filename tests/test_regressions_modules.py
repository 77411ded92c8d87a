"""Modules and values that did not do once what their names say: one test for each."""

import pytest
import torch
from torch import nn
from torch.distributions import Independent, Normal

import continua as ct
from continua.train import half_bases


def hypernetwork(seed: int) -> ct.Hypernetwork:
    torch.manual_seed(seed)
    module = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Tanh())
    with torch.no_grad():
        module[1].running_mean.normal_()
    return ct.Hypernetwork(module, nn.Linear(1, 18))


def test_a_hypernetwork_shows_its_module():
    field, other = hypernetwork(0), hypernetwork(1)
    assert {p for p in field.parameters() if p.requires_grad} == set(field.net.parameters())
    other.load_state_dict(field.state_dict())
    s, z = torch.tensor(0.3), torch.randn(4, 3)
    for each in (field, other):
        each.eval()
        assert not any(part.training for part in each.module.modules())
    assert torch.equal(other(s, z, z), field(s, z, z))
    field.double()
    assert all(t.dtype == torch.float64 for t in field.module.parameters())
    assert field(s.double(), z.double(), z).dtype == torch.float64


def test_a_block_of_a_hypernetwork_shows_its_module():
    block = ct.ODEBlock(hypernetwork(0), ct.PiecewiseConstant(2), ct.Euler(steps=2))
    trained = dict(block.named_parameters())
    assert all("net" in name for name, p in trained.items() if p.requires_grad)
    block.double().eval()
    x = torch.randn(4, 3, dtype=torch.float64)
    assert block(x).dtype == torch.float64
    other = ct.ODEBlock(hypernetwork(1), ct.PiecewiseConstant(2), ct.Euler(steps=2))
    other.double().eval().load_state_dict(block.state_dict())
    assert torch.equal(other(x), block(x))


class Drawn(Independent):
    """A prior that counts how often it is asked."""

    draws = 0

    def rsample(self, sample_shape=()):
        type(self).draws += 1
        return super().rsample(sample_shape)


def prior(kind=Independent):
    return kind(Normal(torch.zeros(2), torch.ones(2)), 1)


@pytest.mark.parametrize("trace", ["exact", "hutchinson"])
def test_sampling_a_flow_solves_without_the_trace(trace):
    graphs = []

    class Linear(nn.Linear):
        def forward(self, z):
            graphs.append(z.requires_grad or torch.is_grad_enabled())
            return super().forward(z)

    layer = Linear(2, 2)
    flow = ct.ContinuousFlow(layer, prior(), trace=trace)
    torch.manual_seed(0)
    sample, after = flow.sample((5,)), torch.rand(1)
    assert graphs
    assert not any(graphs)
    torch.manual_seed(0)
    drawn, expected = prior().rsample((5,)), torch.rand(1)
    assert torch.equal(after, expected)  # no noise for a trace that is not needed
    matrix = torch.block_diag(layer.weight.detach(), torch.zeros(1, 1))
    matrix[:2, 2] = layer.bias.detach()
    carried = torch.linalg.matrix_exp(-matrix) @ torch.cat([drawn, torch.ones(5, 1)], 1).mT
    torch.testing.assert_close(sample, carried[:2].mT, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("shape", [(), (3,)])
def test_a_flow_draws_from_its_prior_once(shape):
    field = ct.DataControl(nn.Linear(4, 2))
    flow = ct.ContinuousFlow(field, prior(Drawn), context="given")
    Drawn.draws = 0
    assert flow.sample(shape, torch.randn(4, 2)).shape == (*shape, 4, 2)
    assert Drawn.draws == 1


@pytest.mark.parametrize("basis", [ct.GaussianRBF(8, 0.5), ct.MultiquadricRBF(8, 0.5)], ids=repr)
def test_half_of_a_radial_basis_keeps_its_width(basis):
    weights, _ = half_bases(ct.ODEBlock(nn.Linear(2, 2), basis))
    assert set(weights[""].values()) == {type(basis)(4, 0.5)}


@pytest.mark.parametrize("kind", [ct.Adjoint, ct.Backprop, "adjoint", None])
def test_a_gradient_is_an_instance(kind):
    block = ct.ODEBlock(nn.Linear(2, 2))
    with pytest.raises(ct.ArgumentError, match="instance such as"):
        block.gradient = kind
    assert block.gradient == ct.Backprop()


@pytest.mark.parametrize("field", [nn.Linear(2, 2), nn.Tanh()], ids=repr)
def test_a_pattern_for_everything_may_match_nothing(field):
    every = {"*": ct.PiecewiseConstant(2)}
    block = ct.ODEBlock(field, every, ct.Euler(steps=2), state_basis=every)
    assert not block.expansion.state
    assert block(torch.ones(1, 2)).shape == (1, 2)


@pytest.mark.parametrize("names", [("*",), ("weight", "*")])
def test_patterns_on_a_constant_block(names):
    block = ct.ODEBlock(nn.Linear(2, 2), ct.Constant(), ct.Euler(steps=4))
    patterns = dict.fromkeys(names, ct.PiecewiseConstant(2))
    for model in (block, nn.Sequential(block, ct.ODEBlock(nn.Linear(2, 2), ct.Legendre(4)))):
        small = ct.compress(model, patterns, state_basis={"*": ct.PiecewiseConstant(2)})
        first = small if model is block else small[0]
        assert set(first.expansion.weights.values()) == {ct.Constant()}
        assert torch.equal(first.field.weight, block.field.weight)
