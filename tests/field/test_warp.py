"""Weights in a basis of a depth that is learned too."""

import math

import pytest
import torch
from torch import nn

import continua as ct
from continua.basis import FAMILIES
from field.warps import pair
from nets import conv_unit, mlp

SMOOTH = [
    ct.Fourier(2), ct.Polynomial(3), ct.Legendre(4), ct.Chebyshev(3), ct.GaussianRBF(4),
    ct.MultiquadricRBF(3),
]  # fmt: skip
GRADIENTS = [
    (ct.RK4(steps=6), ct.Backprop()),
    (ct.RK4(steps=6), ct.Checkpoint()),
    (ct.ReversibleHeun(steps=6), ct.Reversible()),
    (ct.Dopri8(1e-8, 1e-8), ct.Adjoint()),
    (ct.Dopri8(1e-8, 1e-8), ct.Adjoint("backsolve")),
]
every_basis = pytest.mark.parametrize("basis", SMOOTH, ids=repr)
# Every gradient with a wave and with a bump, every basis by plain backpropagation.
every_pair = pytest.mark.parametrize(
    ("solver", "gradient", "basis"),
    [
        *((*how, basis) for how in GRADIENTS for basis in (ct.Fourier(1), ct.GaussianRBF(3))),
        *((*GRADIENTS[0], basis) for basis in SMOOTH),
    ],
    ids=repr,
)


@every_pair
def test_without_a_warp_it_is_the_plain_block(solver, gradient, basis):
    warped, plain = pair(basis, solver, gradient)
    x = torch.randn(4, 3, dtype=torch.float64)
    ends = warped(x), plain(x)
    torch.testing.assert_close(*ends, rtol=1e-7, atol=1e-7)
    for end in ends:
        end.square().sum().backward()
    for name, stack in plain.field.named_parameters():
        found = warped.field.expanded.get_parameter(name).grad[0]
        torch.testing.assert_close(found, stack.grad, rtol=1e-5, atol=1e-6)


@every_basis
def test_it_starts_as_the_module(basis):
    """Exactly where the basis contains the constants, else as near as a block comes."""
    module = mlp(3).double()
    warped = ct.ODEBlock(ct.Warped(module, basis), solver=ct.RK4(steps=3))
    x = torch.randn(4, 3, dtype=torch.float64)
    exact = ct.ODEBlock(module, ct.Constant(), ct.RK4(steps=3))(x)
    near = ct.ODEBlock(module, basis, ct.RK4(steps=3))(x)
    torch.testing.assert_close(warped(x), near, rtol=1e-12, atol=1e-12)
    if not type(basis).__name__.endswith("RBF"):
        torch.testing.assert_close(warped(x), exact, rtol=1e-9, atol=1e-9)


class Scale(nn.Module):
    """dz/ds = a z."""

    def __init__(self):
        super().__init__()
        self.a = nn.Parameter(torch.ones(1, dtype=torch.float64))

    def forward(self, z):
        return self.a * z


@pytest.mark.parametrize(
    ("basis", "dilation", "shift"),
    [
        (ct.Polynomial(2), 3.0, -2.0),
        (ct.Legendre(2), -2.5, 0.5),
        (ct.Fourier(1), 0.4, 1.3),
        (ct.GaussianRBF(2), 2.0, -0.5),
    ],
    ids=repr,
)
def test_the_depth_is_stretched_and_shifted(basis, dilation, shift):
    """z(1) = exp of the integral of phi_1(alpha s + beta), also beyond [0, 1]."""
    field = ct.Warped(Scale(), basis, dilation, shift)
    with torch.no_grad():
        field.expanded.a.zero_()[1] = 1
    block = ct.ODEBlock(field, solver=ct.Dopri8(1e-11, 1e-11))
    z = block(torch.ones(1, 1, dtype=torch.float64))
    s = (torch.arange(4000, dtype=torch.float64) + 0.5) / 4000
    expected = math.exp(float(basis(dilation * s + shift)[:, 1].mean()))
    assert z.item() == pytest.approx(expected, rel=1e-6)


@every_pair
def test_gradients_by_finite_differences(solver, gradient, basis):
    torch.manual_seed(0)
    inner = ct.DataControl(nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3))).double()
    block = ct.ODEBlock(ct.Warped(inner, basis, 1.4, -0.3), solver=solver, gradient=gradient)
    with torch.no_grad():
        for p in block.field.expanded.parameters():
            p.add_(0.2 * torch.randn_like(p))
    z = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)
    x = torch.randn(2, 2, dtype=torch.float64, requires_grad=True)
    inputs = [z, x, *block.parameters()]
    assert len(inputs) == 8

    def loss():
        return block(z, control=x).square().sum()

    found = torch.autograd.grad(loss(), inputs)
    assert [g.shape for g in found] == [p.shape for p in inputs]
    assert all(g.abs().sum() > 0 for g in found)
    # The warp for itself, then everything at once in a direction of its own.
    moves = [{2: torch.ones(1).double()}, {3: torch.ones(1).double()}]
    moves.append({i: torch.randn_like(p) for i, p in enumerate(inputs)})
    for move in moves:
        ends = []
        for sign in (1, -1):
            with torch.no_grad():
                for i, direction in move.items():
                    inputs[i].add_(direction, alpha=sign * 1e-4)
                ends.append(float(loss()))
                for i, direction in move.items():
                    inputs[i].sub_(direction, alpha=sign * 1e-4)
        slope = sum(float((found[i] * direction).sum()) for i, direction in move.items())
        assert slope == pytest.approx((ends[0] - ends[1]) / 2e-4, rel=1e-4, abs=1e-6)


# -- which steps resolve it --------------------------------------------------------------------


def flat(module):
    return torch.cat([p.grad.reshape(-1) for p in module.parameters()])


@pytest.mark.parametrize("gradient", [ct.Backprop(), ct.Adjoint()], ids=repr)
@pytest.mark.parametrize(
    ("basis", "inside"),
    [(ct.Fourier(3), False), (ct.Chebyshev(6), True), (ct.GaussianRBF(5), False)],
    ids=repr,
)
def test_a_smooth_state_does_not_hide_a_fast_warped_basis(gradient, basis, inside):
    """All but the constant are without weight, the state is easy, the gradient is not."""
    torch.manual_seed(0)
    field = ct.Warped(nn.Linear(4, 2), basis, 2.0, 0.1)
    wrapped = ct.DataControl(field) if inside else ct.Warped(nn.Linear(2, 2), basis, 2.0, 0.1)
    block = ct.ODEBlock(wrapped.double(), solver=ct.Dopri5(1e-6, 1e-6), gradient=gradient)
    fine = ct.compress(block, solver=ct.RK4(steps=150))
    fine.gradient = ct.Backprop()
    x = torch.ones(3, 2, dtype=torch.float64)
    for model in (block, fine):
        model(x).square().sum().backward()
    found, exact = flat(block), flat(fine)
    difference = float((found - exact).norm() / exact.norm())
    assert difference < (1e-4 if isinstance(gradient, ct.Adjoint) else 2e-3)


def test_the_steps_follow_the_dilation():
    def steps(dilation, frozen=False):
        field = ct.Warped(nn.Linear(2, 2), ct.Fourier(4), dilation)
        block = ct.ODEBlock(field, solver=ct.Dopri5(1e-4, 1e-4))
        if frozen:
            block.field.expanded.requires_grad_(False)
        return block.solve(torch.ones(1, 2)).stats.steps

    assert steps(0.5) < steps(2.0) < steps(-6.0)
    assert steps(6.0, frozen=True) < steps(2.0)


# -- which weights vary ------------------------------------------------------------------------


def test_patterns_and_what_they_leave_constant():
    module = mlp(3)
    field = ct.Warped(module, {"0.weight": ct.Fourier(1), "2.*": ct.Legendre(2)})
    shapes = {name: list(p.shape) for name, p in field.expanded.named_parameters()}
    assert shapes == {"0.weight": [3, 8, 3], "0.bias": [8], "2.weight": [2, 3, 8], "2.bias": [2, 3]}
    assert list(field.weights(torch.tensor(0.3))) == ["0.weight", "2.weight", "2.bias"]
    assert torch.equal(field.expanded[0].bias, module[0].bias)
    assert field.dilation.shape == field.shift.shape == ()
    block = ct.ODEBlock(field, solver=ct.RK4(steps=2))
    block(torch.randn(2, 3)).sum().backward()
    assert all(p.grad is not None for p in block.parameters())


def test_tied_weights_stay_tied_and_frozen_ones_as_they_are():
    torch.manual_seed(0)
    first, second = nn.Linear(3, 3), nn.Linear(3, 3)
    second.weight = first.weight
    second.bias.requires_grad_(False)
    module = nn.Sequential(first, nn.Tanh(), second).double()
    warped, plain = pair(ct.Legendre(3), ct.RK4(steps=3), module=module)
    assert torch.equal(warped.field.expanded[2].bias, second.bias)
    assert warped.field.expanded[0].weight is warped.field.expanded[2].weight
    x = torch.randn(2, 3, dtype=torch.float64)
    torch.testing.assert_close(warped(x), plain(x), rtol=1e-12, atol=1e-12)
    again = ct.fit_hypernetwork(warped, ct.Legendre(3))
    torch.testing.assert_close(again(x), plain(x), rtol=1e-9, atol=1e-9)


def test_batch_norm_inside_is_one_state_and_counts_once():
    torch.manual_seed(0)
    field = ct.Warped(conv_unit(2), {"2.weight": ct.Fourier(1), "5.weight": ct.Chebyshev(3)})
    block = ct.ODEBlock(field, solver=ct.RK4(steps=2))
    x = torch.randn(4, 2, 5, 5)
    before = block.field.expanded[0].running_mean.clone()
    block(x)
    assert before.shape == (1, 2)
    assert not torch.equal(block.field.expanded[0].running_mean, before)
    assert int(block.field.expanded[0].num_batches_tracked) == 1
    block.eval()
    assert torch.equal(block(x), block(x))


def test_the_module_is_untouched():
    module = mlp(3)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    block = ct.ODEBlock(ct.Warped(module, ct.Fourier(2)), solver=ct.RK4(steps=2))
    with torch.no_grad():
        for p in block.parameters():
            p.add_(1)
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())


# -- mistakes ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "basis",
    [
        *(kind.of_size(n) for kind in FAMILIES.values() for n in (4, 6)
          if kind.of_size(6).frequency == 0 and kind is not ct.Constant),
        ct.BSpline(3, degree=2), ct.DiscontinuousLinear(2), ct.PiecewiseConstant(1),
    ],
    ids=repr,
)  # fmt: skip
def test_a_basis_that_breaks_is_refused(basis):
    with pytest.raises(ct.ArgumentError) as caught:
        ct.Warped(nn.Linear(2, 2), {"weight": basis})
    assert f"'weight' was given {basis!r}" in str(caught.value)
    assert "use Fourier, Legendre, Chebyshev or GaussianRBF" in str(caught.value)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: ct.Warped(nn.Tanh(), ct.Fourier(1)), ct.ArgumentError, "Tanh has no trainable"),
        (lambda: ct.Warped(nn.Linear(2, 2), ct.Constant()), ct.ArgumentError, "nothing to warp"),
        (lambda: ct.Warped(nn.Linear(2, 2), {}), ct.ArgumentError, "nothing to warp"),
        (
            lambda: ct.Warped(nn.Linear(2, 2), {"conv*": ct.Fourier(1)}),
            ct.ArgumentError,
            "pattern 'conv\\*' matches no parameter; the parameters are: 'weight', 'bias'",
        ),
        (lambda: ct.Warped(nn.Linear(2, 2), 5), ct.ArgumentError, "given 5, which is not a basis"),
        (
            lambda: ct.Warped(nn.Linear(2, 2), ct.Fourier(1), dilation=math.inf),
            ct.ArgumentError,
            "dilation is a finite number, not inf",
        ),
        (
            lambda: ct.Warped(nn.Linear(2, 2), ct.Fourier(1), shift="half"),
            ct.ArgumentError,
            "shift is a finite number, not 'half'",
        ),
        (lambda: ct.Warped(len, ct.Fourier(1)), ct.ModuleError, "a field is an nn.Module"),
        (
            lambda: ct.ODEBlock(ct.Warped(nn.Linear(2, 2), ct.Fourier(1)), init="independent"),
            ct.ModuleError,
            "use init='copy'",
        ),
        (
            lambda: ct.unroll(
                ct.ODEBlock(ct.Warped(nn.Linear(2, 2), ct.Fourier(1)), solver=ct.RK4(steps=1))
            ),
            ct.ModuleError,
            "Warped cannot be written out",
        ),
        (
            lambda: ct.fit_hypernetwork(ct.ODEBlock(nn.Linear(2, 2)), ct.Fourier(1)),
            ct.ArgumentError,
            "a Hypernetwork or a Warped, not Linear; .* use continua.compress",
        ),
    ],
)
def test_mistakes(make, error, message):
    with pytest.raises(error, match=message):
        make()
