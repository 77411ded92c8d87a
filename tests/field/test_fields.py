"""Fields that read depth and input, of higher order, and the maps before them."""

import copy
import math
from itertools import pairwise

import pytest
import torch
from torch import nn

import continua as ct

EXACT = [
    (ct.RK4(steps=6), ct.Backprop()),
    (ct.RK4(steps=6), ct.Checkpoint()),
    (ct.ReversibleHeun(steps=6), ct.Reversible()),
]
CONTINUOUS = [(ct.Dopri8(1e-10, 1e-10), g) for g in (ct.Adjoint(), ct.Adjoint("backsolve"))]
every_gradient = pytest.mark.parametrize(("solver", "gradient"), EXACT + CONTINUOUS, ids=repr)


class Reflect(nn.Module):
    """Takes [z, x] to -theta (z + x)."""

    def __init__(self, theta):
        super().__init__()
        self.theta = nn.Parameter(torch.tensor(theta, dtype=torch.float64))

    def forward(self, both):
        z, x = both.chunk(2, 1)
        return -self.theta * (z + x)


@pytest.mark.parametrize("theta", [0.5, 2.0, 5.0])
def test_the_reflection_of_proposition_2(theta):
    """z(1) = -x + 2 x exp(-theta)."""
    block = ct.ODEBlock(ct.DataControl(Reflect(theta)), solver=ct.Dopri8(1e-10, 1e-10))
    x = torch.linspace(-1, 1, 7, dtype=torch.float64).reshape(-1, 1)
    expected = -x + 2 * x * math.exp(-theta)
    torch.testing.assert_close(block(x), expected, rtol=1e-8, atol=1e-8)


def gradients(block, z, control, inputs):
    block = copy.deepcopy(block)
    loss = block(z, control=control).square().sum()
    found = torch.autograd.grad(loss, [*inputs, *block.parameters()])
    return torch.cat([g.reshape(-1) for g in found])


@every_gradient
@pytest.mark.parametrize("basis", [ct.Constant(), ct.PiecewiseConstant(3), ct.Fourier(1)], ids=repr)
@pytest.mark.parametrize("how", ["concat", "add"])
def test_gradients_flow_into_the_control(solver, gradient, basis, how):
    torch.manual_seed(0)
    inner = nn.Sequential(nn.Linear(3 if how == "add" else 5, 6), nn.Tanh(), nn.Linear(6, 3))
    field = ct.DataControl(inner, how=how, embed=nn.Linear(4, 3 if how == "add" else 2)).double()
    block = ct.ODEBlock(field, basis, solver, gradient)
    z = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
    x = torch.randn(5, 4, dtype=torch.float64, requires_grad=True)
    found = gradients(block, z, x, [z, x])
    reference = ct.compress(block, solver=solver)
    reference.gradient = ct.Backprop()
    exact = gradients(reference, z, x, [z, x])
    assert float((found - exact).norm() / exact.norm()) < (
        1e-5 if isinstance(gradient, ct.Adjoint) else 1e-10
    )


# -- signals -----------------------------------------------------------------------------------


class Follow(ct.Field):
    """dz/ds = u(s)."""

    def forward(self, s, z, x):
        return x(s).expand_as(z)


@pytest.mark.parametrize("kind", ["linear", "cubic", "previous"])
@pytest.mark.parametrize("solver", [ct.Dopri5(1e-9, 1e-9), ct.RK4(steps=200)], ids=repr)
def test_a_signal_is_integrated(kind, solver):
    depths = [0.0, 0.3, 0.55, 1.0]
    values = torch.tensor([[1.0], [-2.0], [0.5], [3.0]], dtype=torch.float64)
    path = ct.Signal(depths, values, kind)
    z = ct.ODEBlock(Follow(), solver=solver)(torch.zeros(1, 1, dtype=torch.float64), control=path)
    # Simpson's rule on each piece is exact for cubics; a held signal is the value at its start.
    exact = 0.0
    for a, b in pairwise(depths):
        ends = [torch.tensor(s, dtype=torch.float64) for s in (a, (a + b) / 2, b)]
        start, middle, end = (float(path(s)) for s in ends)
        exact += (b - a) * (start if kind == "previous" else (start + 4 * middle + end) / 6)
    # Adaptive solvers stop where the signal jumps or bends, not where its curvature does; a grid
    # knows none of these.
    stops = {"linear": 1e-8, "previous": 1e-8, "cubic": 1e-6}
    grid = {"linear": 1e-4, "previous": 2e-2, "cubic": 1e-4}
    error = (stops if isinstance(solver, ct.Dopri5) else grid)[kind]
    assert float(z) == pytest.approx(exact, abs=error)


def test_an_adaptive_solver_stops_where_a_signal_jumps():
    path = ct.Signal([0.0, 0.37, 1.0], torch.tensor([[1.0], [5.0], [0.0]]).double(), "previous")
    block = ct.ODEBlock(Follow(), solver=ct.Dopri5(1e-6, 1e-6))
    z = block(torch.zeros(1, 1).double(), control=path)
    assert float(z) == pytest.approx(0.37 + 5 * 0.63, abs=1e-12)


@every_gradient
@pytest.mark.parametrize("kind", ["linear", "cubic", "previous"])
def test_gradients_flow_into_a_signal(solver, gradient, kind):
    torch.manual_seed(0)
    field = ct.DataControl(nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 2))).double()
    block = ct.ODEBlock(field, ct.PiecewiseConstant(2), solver, gradient)
    values = torch.randn(4, 3, 2, dtype=torch.float64, requires_grad=True)
    z = torch.randn(3, 2, dtype=torch.float64)
    path = ct.Signal([-0.1, 0.25, 0.7, 1.2], values, kind)
    found = gradients(block, z, path, [values])
    reference = ct.compress(block, solver=solver)
    reference.gradient = ct.Backprop()
    exact = gradients(reference, z, path, [values])
    assert exact[: values.numel()].abs().sum() > 0
    assert float((found - exact).norm() / exact.norm()) < (
        1e-4 if isinstance(gradient, ct.Adjoint) else 1e-10
    )


# -- depth, order, augmentation ----------------------------------------------------------------


class Product(nn.Module):
    """Takes [z, s] to s z."""

    def forward(self, both):
        return both[:, :-1] * both[:, -1:]


@pytest.mark.parametrize("shape", [(4, 3), (2, 3, 5, 5), (2, 3, 6)])
def test_the_depth_is_a_channel(shape):
    z = torch.randn(shape, dtype=torch.float64)
    block = ct.ODEBlock(ct.DepthConcat(Product()), solver=ct.Dopri8(1e-10, 1e-10))
    torch.testing.assert_close(block(z), z * math.exp(0.5), rtol=1e-8, atol=1e-8)


def test_each_layer_is_told_the_depth():
    layers = [nn.Sequential(nn.Linear(3, 8), nn.Tanh()), nn.Linear(9, 2)]
    block = ct.ODEBlock(ct.DepthConcat(*layers), solver=ct.RK4(steps=2))
    assert block(torch.ones(4, 2)).shape == (4, 2)


@pytest.mark.parametrize("order", [1, 2, 3, 5])
def test_higher_order_is_the_companion_system(order):
    """d^n q / ds^n = q: with all derivatives one at the start, q = exp(s)."""

    class First(nn.Module):
        def forward(self, z):
            return z[:, :1]

    block = ct.ODEBlock(ct.HigherOrder(First(), order), solver=ct.Dopri8(1e-10, 1e-10))
    z = block(torch.ones(2, order, dtype=torch.float64))
    torch.testing.assert_close(z, torch.full_like(z, math.e), rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("order", [2, 3])
def test_higher_order_on_images(order):
    field = ct.HigherOrder(nn.Conv2d(6, 6 // order, 3, padding=1), order)
    x = torch.randn(2, 6, 5, 5)
    assert ct.ODEBlock(field, ct.PiecewiseConstant(2), ct.RK4(steps=2))(x).shape == x.shape


def test_selective_second_order():
    """q0 swings, q1 decays: q0'' = -q0, q1' = -q1."""

    class Forces(nn.Module):
        def forward(self, z):
            return torch.stack([-z[:, 1], -z[:, 0]], 1)  # f of q1, then the force on q0

    block = ct.ODEBlock(ct.SelectiveSecondOrder(Forces(), dims=[0]), solver=ct.Dopri8(1e-10, 1e-10))
    z = block(torch.tensor([[1.0, 1.0, 0.0]], dtype=torch.float64))
    expected = torch.tensor([[math.cos(1), math.exp(-1), -math.sin(1)]], dtype=torch.float64)
    torch.testing.assert_close(z, expected, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("dims", [[0], [2], [0, 1], [3, 1], [2, 0]], ids=str)
def test_chosen_coordinates_have_their_speeds_wherever_they_stand(dims):
    """By hand: q' is the speed for the chosen, the module's next channel for the others."""
    torch.manual_seed(0)
    module = nn.Linear(4 + len(dims), 4)
    field = ct.SelectiveSecondOrder(module, dims)
    z = torch.randn(3, 4 + len(dims))
    out, rest = module(z), iter(range(4))
    rows = [z[:, 4 + dims.index(i)] if i in dims else out[:, next(rest)] for i in range(4)]
    expected = torch.stack([*rows, *out[:, 4 - len(dims) :].unbind(1)], 1)
    assert torch.equal(field(torch.zeros(()), z, z), expected)
    block = ct.ODEBlock(field, ct.PiecewiseConstant(2), ct.Euler(steps=4))
    torch.testing.assert_close(ct.unroll(block)(z), block(z))


@pytest.mark.parametrize("dims", [[0], [2, 0], [0, 1, 2]])
def test_selective_second_order_behind_an_input_layer(dims):
    n = 3 + len(dims)
    model = nn.Sequential(
        ct.InputLayer(nn.Linear(3, len(dims)), keep_input=True),
        ct.ODEBlock(ct.SelectiveSecondOrder(nn.Linear(n, 3), dims), solver=ct.RK4(steps=2)),
    )
    assert model(torch.randn(4, 3)).shape == (4, n)


def test_augmentation():
    x = torch.randn(2, 3, 4, 4)
    assert ct.ZeroAugment(5)(x).shape == (2, 8, 4, 4)
    first = ct.ZeroAugment(2, place="first")(x)
    assert torch.equal(first[:, 2:], x)
    assert not first[:, :2].any()
    layer = ct.InputLayer(nn.Conv2d(3, 6, 1))
    assert layer(x).shape == (2, 6, 4, 4)
    kept = ct.InputLayer(nn.Conv2d(3, 6, 1), keep_input=True, place="first")(x)
    assert torch.equal(kept[:, 6:], x)
    sequence = torch.randn(2, 7, 3)
    assert ct.ZeroAugment(1, dim=-1)(sequence).shape == (2, 7, 4)


def test_a_vector_controls_an_image():
    field = ct.DataControl(nn.Conv2d(3 + 4, 3, 3, padding=1))
    block = ct.ODEBlock(field, solver=ct.RK4(steps=2))
    assert block(torch.randn(2, 3, 5, 5), control=torch.randn(2, 4)).shape == (2, 3, 5, 5)


# -- mistakes ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ct.HigherOrder(nn.Identity(), 0), "order is a whole number"),
        (lambda: ct.DataControl(nn.Identity(), how="multiply"), "'concat' or 'add'"),
        (lambda: ct.SelectiveSecondOrder(nn.Identity(), []), "one coordinate or more"),
        (lambda: ct.SelectiveSecondOrder(nn.Identity(), [0, 0]), "each once"),
        (lambda: ct.SelectiveSecondOrder(nn.Identity(), [-1]), "from 0"),
        (lambda: ct.ZeroAugment(0), "at least 1"),
        (lambda: ct.ZeroAugment(1, place="middle"), "'first' or 'last'"),
        (ct.DepthConcat, "at least one module"),
        (lambda: ct.Signal([0.0], torch.ones(1)), "two or more depths"),
        (lambda: ct.Signal([0.0, 0.0], torch.ones(2)), "increase"),
        (lambda: ct.Signal([0.0, 1.0], torch.ones(3, 1)), r"values \[2, ...\]"),
        (lambda: ct.Signal([0.0, 1.0], torch.ones(2), "spline"), "kind is one of"),
    ],
)
def test_what_cannot_be_made(make, message):
    with pytest.raises(ct.ContinuaError, match=message):
        make()


@pytest.mark.parametrize(
    ("field", "shape", "control", "message"),
    [
        (ct.HigherOrder(nn.Linear(5, 2)), (2, 5), None, "order must divide"),
        (ct.HigherOrder(nn.Linear(4, 3)), (2, 4), None, "gives 2 of 4 channels, not 3"),
        (ct.SelectiveSecondOrder(nn.Linear(4, 3), [3]), (2, 4), None, "not all among these"),
        (ct.SelectiveSecondOrder(nn.Linear(4, 2), [0]), (2, 4), None, "positions, 3, not 2"),
        (ct.DataControl(nn.Linear(5, 2)), (2, 2), torch.ones(3, 3), "cannot stand beside"),
        (ct.DataControl(nn.Linear(2, 2), how="add"), (2, 2), torch.ones(2, 3), "cannot be added"),
        (ct.DataControl(nn.Linear(4, 2)), (2, 2), "push", "a tensor or a Signal, not str"),
        (
            ct.DataControl(nn.Linear(4, 2)),
            (2, 2),
            ct.Signal([0.0, 0.5], torch.ones(2, 2, 2)),
            "from depth 0 to 0.5, but the solve goes from 0 to 1",
        ),
    ],
)
def test_what_does_not_fit(field, shape, control, message):
    block = ct.ODEBlock(field, solver=ct.RK4(steps=2))
    with pytest.raises(ct.ContinuaError, match=message):
        block(torch.ones(shape), control=control)
