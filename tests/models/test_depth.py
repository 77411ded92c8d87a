"""Depth as a function of the input."""

import math

import pytest
import torch
from torch import nn

import continua as ct
from continua.models import AdaptiveDepth


class Scale(nn.Module):
    """dz/ds = a z."""

    def __init__(self, a=1.0):
        super().__init__()
        self.a = nn.Parameter(torch.tensor(a, dtype=torch.float64))

    def forward(self, z):
        return self.a * z


class First(nn.Module):
    """The depth is the first coordinate, times a weight."""

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.tensor(1.0, dtype=torch.float64))

    def forward(self, x):
        return self.w * x[:, 0]


def inputs():
    return torch.tensor([[0.2, 1.0], [0.7, -1.0], [1.5, 2.0]], dtype=torch.float64)


@pytest.mark.parametrize(
    "solver", [ct.Dopri8(1e-10, 1e-10), ct.RK4(steps=200)], ids=lambda s: type(s).__name__
)
def test_every_sample_has_its_own_depth(solver):
    model = AdaptiveDepth(ct.ODEBlock(Scale(), solver=solver), First(), positive=None)
    x = inputs()
    torch.testing.assert_close(model(x), x * x[:, :1].exp(), rtol=1e-7, atol=1e-7)
    assert torch.equal(model.depths(x), x[:, 0])


@pytest.mark.parametrize(
    "basis", [ct.Polynomial(2), ct.Legendre(3), ct.PiecewiseLinear(2)], ids=repr
)
def test_every_sample_reads_the_weights_at_its_own_depth(basis):
    """a(s) = 1 + 2 s: z(S) = x exp(S + S^2); depths stay within the span."""
    block = ct.ODEBlock(Scale(), basis, ct.Dopri8(1e-10, 1e-10))
    nodes = torch.linspace(0, 1, 9, dtype=torch.float64)
    with torch.no_grad():
        coefficients = ct.fit_coefficients(basis, nodes.tolist(), 1 + 2 * nodes)
        block.field.a.copy_(coefficients)
    model = AdaptiveDepth(block, First(), positive=None)
    x = inputs() * torch.tensor([0.6, 1.0], dtype=torch.float64)
    depth = x[:, :1]
    expected = x * (depth + depth.square()).exp()
    torch.testing.assert_close(model(x), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("solver", "gradient"),
    [
        (ct.RK4(steps=8), ct.Backprop()),
        (ct.RK4(steps=8), ct.Checkpoint()),
        (ct.ReversibleHeun(steps=8), ct.Reversible()),
        (ct.Dopri8(1e-10, 1e-10), ct.Adjoint()),
        (ct.Dopri8(1e-10, 1e-10), ct.Adjoint("backsolve")),
    ],
    ids=repr,
)
@pytest.mark.parametrize("basis", [ct.Constant(), ct.Legendre(3)], ids=repr)
@pytest.mark.parametrize("positive", ["softplus", "exp", "absolute", None])
def test_gradients_by_finite_differences(solver, gradient, basis, positive):
    torch.manual_seed(0)
    field = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 2)).double()
    block = ct.ODEBlock(field, basis, solver, gradient)
    with torch.no_grad():
        for p in block.parameters():
            p.add_(0.2 * torch.randn_like(p))
    model = AdaptiveDepth(block, First(), positive)
    x = inputs()
    weight = block.field[0].weight

    def loss():
        return model(x).square().sum()

    found = torch.autograd.grad(loss(), [model.depth_net.w, weight])
    for tensor, gradient_found in zip((model.depth_net.w, weight), found, strict=True):
        direction = torch.ones_like(tensor)
        ends = []
        for sign in (1, -1):
            with torch.no_grad():
                tensor.add_(direction, alpha=sign * 1e-6)
                ends.append(loss())
                tensor.sub_(direction, alpha=sign * 1e-6)
        slope = float(ends[0] - ends[1]) / 2e-6
        assert float((gradient_found * direction).sum()) == pytest.approx(slope, rel=1e-4, abs=1e-6)


def test_leibniz():
    """dL/dw = <dL/dz(S), f(z(S))> dS/dw, by hand."""
    model = AdaptiveDepth(
        ct.ODEBlock(Scale(0.8), solver=ct.Dopri8(1e-11, 1e-11)), First(), positive=None
    )
    x = inputs()
    (found,) = torch.autograd.grad(model(x).sum(), [model.depth_net.w])
    end = x * (0.8 * x[:, :1]).exp()
    assert float(found) == pytest.approx(float((0.8 * end * x[:, :1]).sum()), rel=1e-8)


@pytest.mark.parametrize("control", [False, True])
def test_fields_images_and_control(control):
    field = ct.DataControl(nn.Conv2d(6, 3, 3, padding=1))
    block = ct.ODEBlock(field, ct.PiecewiseConstant(2), ct.RK4(steps=3))
    net = nn.Sequential(nn.Flatten(), nn.Linear(48, 1))
    model = AdaptiveDepth(block, net)
    x = torch.randn(4, 3, 4, 4)
    y = model(x, control=torch.randn_like(x) if control else None)
    assert y.shape == x.shape
    y.sum().backward()
    assert all(p.grad is not None for p in model.parameters())


def test_trajectories_by_share():
    model = AdaptiveDepth(ct.ODEBlock(Scale(), solver=ct.RK4(steps=50)), First(), positive=None)
    x = inputs()
    solution = model.solve(x, save_at=[0.0, 0.5, 1.0])
    expected = torch.stack([x * (share * x[:, :1]).exp() for share in (0.0, 0.5, 1.0)])
    torch.testing.assert_close(solution.z, expected, rtol=1e-6, atol=1e-6)


def test_mistakes():
    block = ct.ODEBlock(Scale(), solver=ct.RK4(steps=2))
    with pytest.raises(ct.SolveError, match=r"sample 1 the depth -0\.7"):
        AdaptiveDepth(block, First(), positive=None)(
            inputs() * torch.tensor([[1.0, 1], [-1, 1], [1, 1]], dtype=torch.float64)
        )
    with pytest.raises(ct.SolveError, match="the depth nan"):
        AdaptiveDepth(block, First())(inputs() * math.nan)
    with pytest.raises(ct.ShapeError, match="one number per sample"):
        AdaptiveDepth(block, nn.Identity())(inputs())
    with pytest.raises(ct.ArgumentError, match="positive is one of"):
        AdaptiveDepth(block, First(), positive="square")
    norm = ct.ODEBlock(nn.BatchNorm1d(2).double(), solver=ct.RK4(steps=2))
    with pytest.raises(ct.ModuleError, match="mixes samples"):
        AdaptiveDepth(norm, First())(inputs())
    assert AdaptiveDepth(norm.eval(), First())(inputs()).shape == (3, 2)


@pytest.mark.parametrize("gradient", [ct.Backprop(), ct.Adjoint()], ids=repr)
def test_a_smooth_state_does_not_hide_a_fast_basis(gradient):
    """Weights that start constant make few steps enough for the state, not for the gradient."""

    def gradients(solver, method):
        torch.manual_seed(0)
        linear = nn.Linear(2, 2).double()
        model = AdaptiveDepth(
            ct.ODEBlock(linear, ct.Fourier(5), solver, method), First(), positive=None
        )
        model(inputs()).square().sum().backward()
        return model.block.field.weight.grad

    exact = gradients(ct.RK4(steps=400), ct.Backprop())
    found = gradients(ct.Dopri5(1e-6, 1e-6), gradient)
    assert (found - exact).norm() < 2e-3 * exact.norm()


def test_the_block_is_not_copied_for_a_call(monkeypatch):
    model = AdaptiveDepth(ct.ODEBlock(Scale(), solver=ct.RK4(steps=2)), First(), positive=None)
    monkeypatch.setattr(
        Scale, "__deepcopy__", lambda self, memo: pytest.fail("copied"), raising=False
    )
    model(inputs())


def test_fields_inside_fields_are_resolved_too():
    """Weights of zero allow any step: what limits it is how fast they may vary."""
    longest = []
    for field in (
        ct.Warped(nn.Linear(2, 2), ct.Fourier(5)),
        ct.DataControl(ct.Warped(nn.Linear(4, 2), ct.Fourier(5))),
    ):
        for name, parameter in field.named_parameters():
            if "expanded" in name:
                nn.init.zeros_(parameter)
        block = ct.ODEBlock(field.double(), solver=ct.Dopri5())
        model = AdaptiveDepth(block, First(), positive=None)
        longest.append(max(model.solve(inputs()).stats.step_sizes))
    assert longest[0] == pytest.approx(longest[1])
    assert longest[0] < 0.2


def test_another_mode_before_the_backward_pass_is_refused():
    field = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5)).double()
    block = ct.ODEBlock(field, solver=ct.RK4(steps=4), gradient=ct.Checkpoint())
    model = AdaptiveDepth(block, First(), positive=None)
    loss = model(inputs()).sum()
    model.eval()
    with pytest.raises(ct.SolveError, match="training mode of the field changed"):
        loss.backward()


def test_no_samples_go_nowhere():
    model = AdaptiveDepth(ct.ODEBlock(Scale(), solver=ct.RK4(steps=2)), First(), positive=None)
    assert model(inputs()[:0]).shape == (0, 2)


@pytest.mark.parametrize("span", [(0.0, 1.0), (1.0, 0.0), (3.0, 2.0)])
def test_depth_one_is_a_span_of_length_one_in_its_direction(span):
    class One(nn.Module):
        def forward(self, x):
            return torch.ones(len(x))

    block = ct.ODEBlock(nn.Linear(2, 2), ct.Legendre(3), ct.RK4(steps=8), span=span).double()
    x = inputs()
    torch.testing.assert_close(AdaptiveDepth(block, One(), positive=None)(x), block(x))
