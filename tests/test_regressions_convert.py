"""Faults that a review found where converted models meet the other verbs."""

import pytest
import torch
from torch import nn

import continua as ct
from continua.models import LatentODE


class Layer(nn.Module):
    """Takes two arguments and returns a tuple, as layers of other libraries do."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.norm = nn.Linear(6, 8), nn.Linear(8, 6), nn.LayerNorm(6)

    def forward(self, z, shift):
        return (z + self.second(torch.tanh(self.first(self.norm(z + shift)))),)


class Host(nn.Module):
    def __init__(self, count=4):
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(count))

    def forward(self, x):
        for layer in self.layers:
            (x,) = layer(x, 0.1)
        return x


@pytest.fixture
def model():
    torch.manual_seed(0)
    return ct.convert(Host().eval())


def inputs():
    return torch.randn(64, 6).split(16)


def parameters(model):
    return sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize("budget", [0.6, {"evaluations": 0.5}, {"latency": 0.9}])
def test_a_budget_of_a_converted_model_survives_revert(model, budget):
    small = ct.compress(model, budget=budget, calibrate=inputs())
    assert parameters(ct.revert(small)) == parameters(small) < parameters(model)


def test_weights_by_activation(model):
    small = ct.compress(
        model, ct.PiecewiseConstant(2), steps=2, weight="activation", calibrate=inputs()
    )
    assert len(small.layers) == 2


def test_align_reads_what_layers_are_given(model):
    x = torch.randn(3, 6)
    torch.testing.assert_close(ct.align(model, x)(x), model(x), atol=1e-5, rtol=1e-5)


def test_layers_that_return_tuples_are_refined_and_compressed(model):
    fine = ct.refine(model)
    assert len(ct.compress(fine, ct.PiecewiseConstant(2), steps=2).layers) == 2


def test_within_finds_a_cut_without_loss():
    block = ct.ODEBlock(nn.Linear(2, 2), ct.PiecewiseConstant(8), ct.Euler(steps=8))
    small = ct.compress(block, within=0.0, evaluate=lambda m: 1.0, calibrate=[torch.randn(8, 2)])
    assert small.basis.size == 1


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Parameter(torch.randn(3))
        self.b = nn.Parameter(self.a.data)


def test_parameters_that_share_memory_keep_their_values(tmp_path):
    model = Tied()
    model.a.data.fill_(7)
    ct.save(model, tmp_path, factory=Tied)
    again = ct.load(tmp_path, factory=Tied)
    assert torch.equal(again.a, model.a)
    assert torch.equal(again.b, model.b)


@pytest.mark.parametrize("padded", [-1.0, float("nan"), 50.0])
def test_masked_times_may_be_anything(padded):
    torch.manual_seed(0)
    model = LatentODE(features=2, span=(0.0, 3.0))
    times, x, mask = 3 * torch.rand(4, 6), torch.randn(4, 6, 2), torch.ones(4, 6, dtype=torch.bool)
    mask[0, 3:] = False
    other = times.clone()
    other[0, 3:] = padded
    losses = []
    for given in (times, other):
        torch.manual_seed(1)
        loss = model.loss(given, x, mask)
        losses.append(loss)
    torch.testing.assert_close(losses[0], losses[1])
    losses[1].backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())


def test_events_late_in_time_keep_their_digits():
    z = torch.zeros(1, dtype=torch.float64)
    solution = ct.odeint(
        lambda s, z: torch.ones_like(z), z, (1e9, 1e9 + 200), solver=ct.Euler(steps=20),
        event=lambda s, z: s - (1e9 + 52.0),
    )  # fmt: skip
    assert float(solution.event_at) - 1e9 == pytest.approx(52.0, abs=1e-3)


def test_without_an_event_the_end_of_the_span_has_its_gradient():
    end = torch.tensor(1.0, dtype=torch.float64, requires_grad=True)
    z = torch.ones(1, dtype=torch.float64)
    solution = ct.odeint(lambda s, z: -z, z, (0.0, end), event=lambda s, z: z[0] + 5)
    solution.final.sum().backward()
    assert end.grad.item() == pytest.approx(-torch.exp(torch.tensor(-1.0)).item(), abs=1e-4)
