"""Residual flows: one definition for all rows of NANODE's table 1."""

import math

import pytest
import torch

import continua as ct
from continua.models import residual_flow

ROWS = {
    "autonomous": (ct.Constant(), False, 1),
    "appended": (ct.Constant(), True, 1),
    "unconstrained": (ct.PiecewiseConstant(10), False, 10),
    "trigonometric": (ct.Fourier(10, period=2 * math.pi), False, 21),
    "hundred buckets": (ct.PiecewiseConstant(100), False, 100),
}


@pytest.mark.parametrize("row", ROWS)
def test_about_seventy_thousand_weights_per_function_of_depth(row):
    basis, append_time, functions = ROWS[row]
    net = residual_flow(basis=basis, solver=ct.Euler(steps=1), append_time=append_time)
    inside = sum(p.numel() for i in (1, 2, 3) for p in getattr(net, f"flow{i}").parameters())
    per_function = inside / functions
    assert per_function == (71_331 if append_time else 69_917)
    assert f"{4e-9 * per_function:.1e}" == ("2.9e-04" if append_time else "2.8e-04")


def test_a_unit_step_is_a_residual_network():
    torch.manual_seed(0)
    net = residual_flow(
        basis=ct.PiecewiseConstant(3), solver=ct.Euler(steps=3), epsilon=3.0, widths=(8,)
    ).eval()
    with torch.no_grad():
        for p in net.parameters():
            p.add_(0.1 * torch.randn_like(p))
        x = torch.randn(2, 3, 8, 8)
        z = net.stem(x)
        for i in range(3):
            z = z + net.flow1.at(i + 0.5)(z)
        torch.testing.assert_close(net(x), net.head(z))


def test_a_stem_of_stride_two_halves_the_resolution():
    made = {"basis": ct.Constant(), "solver": ct.Euler(steps=1), "widths": (8, 12)}
    net = residual_flow(stem_stride=2, **made)
    x = torch.randn(2, 3, 16, 16)
    assert net.stem(x).shape == (2, 8, 8, 8)
    assert net(x).shape == (2, 10)
    assert residual_flow(**made).stem(x).shape == (2, 8, 16, 16)
    with pytest.raises(ct.ArgumentError, match="stem_stride"):
        residual_flow(stem_stride=0, **made)


def gradient_error(solver, gradient):
    """How far a gradient is from back-propagation, relative."""
    found = []
    for chosen in (ct.Backprop(), gradient):
        torch.manual_seed(1)
        net = residual_flow(
            basis=ct.Fourier(2), solver=solver, widths=(8, 8), gradient=chosen
        ).double()
        net(torch.randn(2, 3, 8, 8, dtype=torch.float64)).square().sum().backward()
        found.append(torch.cat([p.grad.reshape(-1) for p in net.parameters()]))
    return float((found[0] - found[1]).norm() / found[0].norm())


def test_reversible_gradients_are_exact_in_training():
    assert gradient_error(ct.AsynchronousLeapfrog(steps=6), ct.Reversible()) < 1e-10


@pytest.mark.parametrize("gradient", [ct.Adjoint(), ct.Adjoint("backsolve")], ids=repr)
def test_adjoints_converge_to_it_in_training(gradient):
    """The kinks of ReLU leave them first order in the step."""
    coarse, fine = (gradient_error(ct.RK4(steps=n), gradient) for n in (8, 96))
    assert fine < coarse / 6
    assert fine < 2e-3


@pytest.mark.parametrize(
    ("widths", "says"),
    [
        ((), "widths"),
        (8, "widths"),
        ((8, 4), "shrink"),
        ((6,), "multiple of four"),
        ((0,), "widths"),
    ],
)
def test_widths_that_cannot_be(widths, says):
    with pytest.raises(ct.ArgumentError, match=says):
        residual_flow(basis=ct.Constant(), solver=ct.Euler(steps=1), widths=widths)
