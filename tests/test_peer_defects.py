"""What older libraries of this kind got wrong, and must hold here: one test for each defect."""

import math

import pytest
import torch
from torch import nn

import continua as ct
from continua.basis import FAMILIES
from nets import mlp, scrambled
from problems import PROBLEMS

FINE = ct.Dopri8(1e-9, 1e-9)
every_family = pytest.mark.parametrize("family", FAMILIES)
backprop_and_adjoint = pytest.mark.parametrize(
    "gradient", [ct.Backprop(), ct.Adjoint(), ct.Adjoint("backsolve")], ids=repr
)


class Decay(nn.Module):
    """dz/ds = -k z."""

    def __init__(self, k=0.8):
        super().__init__()
        self.k = nn.Parameter(torch.tensor(k, dtype=torch.float64))

    def forward(self, z):
        return -self.k * z


class Last(nn.Module):
    """The last column of x, untouched."""

    def forward(self, x):
        return x[:, -1]


def doubles(*shape):
    return torch.randn(shape, dtype=torch.float64)


@pytest.mark.parametrize("order", [1, 4, 5])
def test_1_fourier_frequencies_are_whole_and_the_functions_orthogonal(order):
    """The n-th wave has frequency n, and the Gram matrix is diagonal."""
    s = torch.linspace(0, 1, 7, dtype=torch.float64)
    phi = ct.Fourier(order, period=2 * math.pi)(s)
    for n in range(1, order + 1):
        torch.testing.assert_close(phi[:, 2 * n - 1], torch.cos(n * s))
        torch.testing.assert_close(phi[:, 2 * n], torch.sin(n * s))
    gram = ct.gram(ct.Fourier(order), ct.Fourier(order))
    expected = torch.diag(torch.tensor([1.0] + [0.5] * (2 * order), dtype=torch.float64))
    torch.testing.assert_close(gram, expected, rtol=0, atol=1e-12)


@every_family
def test_2_a_layer_without_bias_has_none_at_any_depth(family):
    """Expanding adds no bias: zero stays zero, and there is one parameter."""
    block = ct.ODEBlock(nn.Linear(3, 3, bias=False), FAMILIES[family].of_size(4))
    scrambled(block)
    assert [name for name, _ in block.field.named_parameters()] == ["weight"]
    assert not block(torch.zeros(2, 3)).any()


@every_family
def test_3_every_basis_works_on_convolutions(family):
    """One Euler step is z + conv(z; sum of phi_k(0) theta_k), whatever the family."""
    torch.manual_seed(0)
    basis = FAMILIES[family].of_size(4)
    conv = nn.Conv2d(2, 2, 3, padding=1).double()
    block = scrambled(ct.ODEBlock(conv, basis, ct.Euler(steps=1)))
    z, phi = doubles(2, 2, 5, 5), basis(torch.tensor(0.0, dtype=torch.float64))
    weight, bias = (torch.tensordot(phi, p, 1) for p in block.field.parameters())
    torch.testing.assert_close(block(z), z + nn.functional.conv2d(z, weight, bias, padding=1))
    block(z).sum().backward()
    assert all(p.grad.shape == p.shape for p in block.parameters())


@pytest.mark.parametrize("name", ["dilation", "shift"])
def test_4_the_warp_of_a_chebyshev_basis_has_a_gradient(name):
    """Dilation and shift get the gradient that finite differences give."""
    torch.manual_seed(0)
    field = ct.Warped(mlp(2).double(), ct.Chebyshev(4), dilation=1.2, shift=-0.1)
    block = scrambled(ct.ODEBlock(field, solver=ct.RK4(steps=4)))
    parameter, x = block.field.get_parameter(name), doubles(3, 2)
    (found,) = torch.autograd.grad(block(x).square().sum(), [parameter])
    ends = []
    for step in (1e-6, -2e-6):
        with torch.no_grad():
            parameter.add_(step)
            ends.append(block(x).square().sum().item())
    assert found.item() != 0
    assert found.item() == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-6)


def test_5_samples_of_a_batch_read_the_weights_at_depths_of_their_own():
    """With a(s) = 1 + 2 s, z(S) = x exp(-S - S^2), each sample at its own S."""
    block = ct.ODEBlock(Decay(), ct.Polynomial(2), FINE)
    with torch.no_grad():
        block.field.k.copy_(torch.tensor([1.0, 2.0]))
    x = torch.tensor([[2.0, 0.3], [-1.0, 0.9], [0.5, 0.1]], dtype=torch.float64)
    depth = x[:, 1:]
    y = ct.AdaptiveDepth(block, Last(), positive=None)(x)
    torch.testing.assert_close(y, x * torch.exp(-depth - depth**2), rtol=1e-7, atol=1e-7)


@backprop_and_adjoint
def test_6_the_control_passes_gradient_and_may_be_the_raw_input(gradient):
    """An input layer in front gets gradient by both ways: as the start and as the control."""
    torch.manual_seed(0)
    layer = nn.Linear(3, 2).double()
    field = ct.DataControl(nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 2)).double())
    block = ct.ODEBlock(field, solver=FINE, gradient=gradient)
    x = doubles(4, 3).requires_grad_()
    inputs = [x, layer.weight]
    both = torch.autograd.grad(block(layer(x), control=x).sum(), inputs)
    start = torch.autograd.grad(block(layer(x), control=x.detach()).sum(), inputs)
    seen = torch.autograd.grad(block(layer(x).detach(), control=x).sum(), x)[0]
    assert seen.abs().sum() > 0
    torch.testing.assert_close(both[0], start[0] + seen, rtol=1e-6, atol=1e-7)
    own = ct.ODEBlock(ct.DataControl(nn.Linear(4, 2).double()), solver=FINE, gradient=gradient)
    embedded = layer(x)
    (way,) = torch.autograd.grad(own(embedded).sum(), embedded)
    held = own(embedded, control=embedded.detach()).sum()
    assert not torch.allclose(way, torch.autograd.grad(held, embedded)[0])


@backprop_and_adjoint
def test_7_a_running_cost_with_a_field_of_higher_order(gradient):
    """q'' = -q from (q, 0): the integral of q^2 is q^2 (1/2 + sin(2)/4)."""

    class Spring(nn.Module):
        def forward(self, z):
            return -z[:, :1]

    block = ct.ODEBlock(ct.HigherOrder(Spring()), solver=FINE, gradient=gradient)
    z = torch.tensor([[1.0, 0.0], [-0.6, 0.0]], dtype=torch.float64, requires_grad=True)
    cost = block.solve(z, running_cost=lambda s, z: z[:, 0].square()).cost
    share = 0.5 + math.sin(2) / 4
    torch.testing.assert_close(cost, z[:, 0] ** 2 * share, rtol=1e-7, atol=1e-7)
    (found,) = torch.autograd.grad(cost.sum(), z)
    torch.testing.assert_close(found[:, 0], 2 * z[:, 0] * share, rtol=1e-6, atol=1e-6)


@backprop_and_adjoint
def test_8_a_cost_of_the_field_itself_is_differentiated_by_its_weights(gradient):
    """With l = |f|^2 and f = -k z the integral is k x^2 (1 - exp(-2k)) / 2."""
    k = 0.8
    block = ct.ODEBlock(Decay(k), solver=FINE, gradient=gradient)
    x = torch.tensor([[1.5]], dtype=torch.float64)
    cost = block.solve(x, running_cost=lambda s, z: block.field(z).square().sum(1)).cost
    (found,) = torch.autograd.grad(cost.sum(), list(block.parameters()))
    fall = math.exp(-2 * k)
    assert cost.item() == pytest.approx(k * 1.5**2 * (1 - fall) / 2, rel=1e-7)
    assert found.item() == pytest.approx(1.5**2 / 2 * (1 - fall + 2 * k * fall), rel=1e-6)


@pytest.mark.parametrize("gradient", [ct.Adjoint(), ct.Adjoint("backsolve")], ids=repr)
def test_9_the_adjoint_takes_images(gradient):
    """Its gradients on [B, C, H, W] are those of backpropagation."""
    torch.manual_seed(0)
    first, second = (nn.Conv2d(2, 2, 3, padding=1) for _ in range(2))
    field = nn.Sequential(first, nn.Tanh(), second).double()
    block = scrambled(ct.ODEBlock(field, ct.Fourier(1), ct.Dopri5(1e-6, 1e-6)))
    x = doubles(2, 2, 4, 4).requires_grad_()
    inputs = [x, *block.parameters()]
    exact = torch.autograd.grad(block(x).square().sum(), inputs)
    block.gradient = gradient
    found = torch.autograd.grad(block(x).square().sum(), inputs)
    for a, b in zip(found, exact, strict=True):
        assert float((a - b).norm() / b.norm()) < 1e-4


@backprop_and_adjoint
def test_10_unused_and_frozen_weights_get_no_gradient_or_zeros_of_their_shape(gradient):
    """What nothing depends on has None or zeros [K, ...]; what is frozen has None."""

    class Partly(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.unused, self.frozen = (nn.Linear(3, 3) for _ in range(3))
            self.frozen.requires_grad_(False)

        def forward(self, z):
            return self.frozen(torch.tanh(self.used(z)))

    block = ct.ODEBlock(Partly().double(), ct.Legendre(2), ct.Dopri5(1e-6, 1e-6), gradient)
    block(doubles(4, 3)).sum().backward()
    for p in block.field.unused.parameters():
        assert p.grad is None or (p.grad.shape == p.shape and not p.grad.any())
    assert all(p.grad is None for p in block.field.frozen.parameters())
    assert all(p.grad.shape == p.shape and p.grad.any() for p in block.field.used.parameters())


@pytest.mark.parametrize("solver", [FINE, ct.RK4(steps=60)], ids=repr)
def test_11_every_sample_has_a_span_of_its_own(solver):
    """A sample's end is what it is when it is solved alone over its span."""
    block = ct.ODEBlock(Decay(), solver=solver)
    x = torch.tensor([[2.0, 0.5], [-1.0, 3.0], [0.5, 1.7]], dtype=torch.float64)
    y = ct.AdaptiveDepth(block, Last(), positive=None)(x)
    for i, row in enumerate(x):
        alone = block.solve(row[None], span=(0.0, float(row[1]))).final
        torch.testing.assert_close(y[i], alone[0], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("pair", [ct.Bosh3, ct.Dopri5, ct.Tsit5, ct.Dopri8])
def test_12_adaptive_solvers_save_where_they_are_asked_to(name, pair):
    """As many states as depths, each the solution there, none moved or left out."""
    problem = PROBLEMS[name]
    start, end = problem.span
    depths = [start + (end - start) * share for share in (0.0, 0.013, 0.31, 0.32, 0.9, 1.0)]
    trajectory = problem.solve(pair(1e-7, 1e-7), depths)
    assert len(trajectory.saved) == len(depths)
    for depth, (state,) in zip(depths, trajectory.saved, strict=True):
        torch.testing.assert_close(state, problem.exact(depth), rtol=1e-5, atol=1e-5)
    solution = ct.ODEBlock(nn.Tanh(), solver=pair(1e-4, 1e-4)).solve(
        torch.ones(1, 2), save_at=[0.1, 0.25, 0.7]
    )
    assert solution.s.tolist() == [0.1, 0.25, 0.7]
    assert solution.z.shape == (3, 1, 2)


@pytest.mark.parametrize("name", PROBLEMS)
def test_13_a_backward_span_starts_as_well_as_a_forward_one(name):
    """The way back costs about the way there, and ends where that began."""
    solver, problem = ct.Dopri5(1e-7, 1e-7), PROBLEMS[name]
    there, back = (p.solve(solver) for p in (problem, problem.reversed()))
    torch.testing.assert_close(back.final[0], problem.start, rtol=1e-5, atol=1e-5)
    assert back.stats.evaluations <= 1.5 * there.stats.evaluations + 7
    assert back.stats.rejected <= there.stats.rejected + 1
    first = abs(back.stats.step_sizes[0]) / abs(there.stats.step_sizes[0])
    assert 0.1 < first < 10


@every_family
def test_14_a_chain_of_layers_in_a_basis_has_gradients_from_the_start(family):
    """No layer starts at zero, so every coefficient of every layer is moved by the first step."""
    torch.manual_seed(0)
    block = ct.ODEBlock(mlp(3).double(), FAMILIES[family].of_size(4), ct.RK4(steps=5))
    block(doubles(6, 3)).square().sum().backward()
    for p in block.parameters():
        assert (p.grad.flatten(1).abs().amax(1) > 1e-12).all()


@pytest.mark.parametrize("solver", [ct.RK4(steps=2), ct.Dopri5(1e-3, 1e-3)], ids=repr)
def test_15_in_a_sequential_a_block_is_a_layer(solver):
    """It gives the state at the end, one tensor of the shape of its input."""
    block = ct.ODEBlock(mlp(4), ct.PiecewiseConstant(2), solver)
    model = nn.Sequential(nn.Linear(3, 4), block, nn.Linear(4, 2))
    x = torch.randn(5, 3)
    state = model[0](x)
    assert isinstance(block(state), torch.Tensor)
    assert torch.equal(model(x), model[2](block.solve(state).final))
