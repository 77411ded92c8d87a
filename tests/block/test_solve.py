"""Solving, looking at one depth, and the repr."""

import math

import pytest
import torch
from torch import nn

import continua as ct
from continua.basis import FAMILIES
from nets import conv_unit, mlp, scrambled


def test_solve_saves_where_asked_and_counts():
    block = scrambled(ct.ODEBlock(mlp().double(), ct.PiecewiseConstant(4), ct.RK4(steps=4)))
    x = torch.randn(3, 6, dtype=torch.float64)
    solution = block.solve(x, save_at=[0.0, 0.25, 0.6, 1.0])
    assert solution.z.shape == (4, 3, 6)
    assert solution.s.tolist() == [0.0, 0.25, 0.6, 1.0]
    assert torch.equal(solution.z[0], x)
    torch.testing.assert_close(solution.z[-1], block(x))
    torch.testing.assert_close(solution.final, block(x))
    assert (solution.stats.evaluations, solution.stats.steps) == (16, 4)
    grid = block.solve(x, save_at="steps")
    assert grid.s.tolist() == [0, 0.25, 0.5, 0.75, 1]
    torch.testing.assert_close(grid.z[1], solution.z[1])
    assert block.solve(x).z.shape == (1, 3, 6)


@pytest.mark.parametrize("family", FAMILIES)
def test_solving_backward_undoes_solving_forward(family):
    torch.manual_seed(0)
    field = nn.Sequential(nn.Linear(3, 3), nn.Tanh()).double()
    block = scrambled(
        ct.ODEBlock(field, FAMILIES[family].of_size(4), ct.RK4(steps=24), span=(0, 2))
    )
    x = torch.randn(4, 3, dtype=torch.float64)
    back = block.solve(block(x), span=(2, 0))
    torch.testing.assert_close(back.final, x, rtol=0, atol=1e-3)


def test_a_backward_span_reads_the_same_functions():
    forward = scrambled(ct.ODEBlock(mlp(3), ct.PiecewiseConstant(3), ct.Euler(steps=3)))
    backward = ct.ODEBlock(mlp(3), ct.PiecewiseConstant(3), ct.Euler(steps=3), span=(1, 0))
    backward.load_state_dict(forward.state_dict())
    x = torch.randn(2, 3)
    z = x
    for cell in (2, 1, 0):
        z = z - forward.at((cell + 0.5) / 3)(z) / 3
    torch.testing.assert_close(backward(x), z)
    torch.testing.assert_close(forward.solve(x, span=(1, 0)).final, z)


def test_part_of_a_span():
    block = scrambled(ct.ODEBlock(mlp(3).double(), ct.PiecewiseConstant(2), ct.Euler(steps=4)))
    x = torch.randn(2, 3, dtype=torch.float64)
    half = block.solve(x, span=(0, 0.5)).final
    both = block.solve(half, span=(0.5, 1)).final
    fine = ct.compress(block, steps=8)(x)
    torch.testing.assert_close(both, fine)


@pytest.mark.parametrize("family", FAMILIES)
def test_at_reads_the_functions_of_depth(family):
    basis = FAMILIES[family].of_size(5)
    block = scrambled(ct.ODEBlock(conv_unit(), basis, ct.RK4(steps=2), span=(-1, 3)))
    for s in (-1.0, 0.2, 3.0):
        module = block.at(s)
        phi = basis(torch.tensor((s + 1) / 4, dtype=torch.float64)).float()
        expected = torch.tensordot(phi, block.field[2].weight, dims=1)
        torch.testing.assert_close(module[2].weight, expected, rtol=1e-5, atol=1e-6)
        assert isinstance(module[2].weight, nn.Parameter)
        module(torch.randn(2, 4, 5, 5))


def test_at_a_jump_takes_the_side_that_is_asked_for():
    block = scrambled(ct.ODEBlock(nn.Linear(2, 2), ct.PiecewiseConstant(2), ct.Euler(steps=2)))
    assert torch.equal(block.at(0.5).weight, block.field.weight[1])
    assert torch.equal(block.at(0.5, side="left").weight, block.field.weight[0])


def test_a_field_sees_depth_and_input():
    class Relax(ct.Field):
        def forward(self, s, z, x):
            assert s.shape == ()
            return s * (x - z) + 1

    block = ct.ODEBlock(Relax().double(), solver=ct.RK4(steps=50), span=(0, 2))
    x = torch.ones(1, 2, dtype=torch.float64)
    # z - x satisfies u' = 1 - s u, u(0) = 0: Dawson's integral
    s = torch.linspace(0, 2, 20001, dtype=torch.float64)
    dawson = math.exp(-2) * torch.trapezoid(torch.exp(s.square() / 2), s)
    torch.testing.assert_close(block(x), x + dawson, rtol=1e-6, atol=0)


def test_further_arguments_reach_every_evaluation():
    class Gated(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(3, 3)

        def forward(self, z, gate, *, scale=1.0):
            return gate * self.linear(z) * scale

    block = ct.ODEBlock(Gated(), ct.PiecewiseConstant(2), ct.Euler(steps=2))
    x, gate = torch.randn(4, 3), torch.zeros(4, 3)
    assert torch.equal(block(x, gate), x)
    torch.testing.assert_close(block(x, gate + 1, scale=0.5), block(x, gate + 0.5))


def test_repr_says_what_it_is():
    text = repr(ct.ODEBlock(mlp(norm=True), ct.PiecewiseConstant(8), ct.Euler(steps=8)))
    for part in ("PiecewiseConstant(8)", "Euler(steps=8)", "parameters=976", "state=96", "Linear"):
        assert part in text
    mixed = ct.ODEBlock(mlp(), {"0.*": ct.Fourier(2), "*": ct.Constant()}, ct.RK4(steps=1))
    assert "Fourier(2, period=1.0) for 2, Constant() for 2" in repr(mixed)


def test_another_solver_may_be_assigned_but_no_other_span():
    block = scrambled(ct.ODEBlock(mlp(), ct.Fourier(2), ct.RK4(steps=8)))
    x = torch.randn(2, 6)
    expected = ct.compress(block, solver=ct.Euler(steps=4))(x)
    block.solver = ct.Euler(steps=4)
    torch.testing.assert_close(block(x), expected)
    with pytest.raises(AttributeError):
        block.span = (0, 2)


def test_a_fixed_grid_that_overflows_says_so():
    class Blows(nn.Module):
        def forward(self, z):
            return 1e30 * z * z

    block = ct.ODEBlock(Blows(), solver=ct.Euler(steps=4))
    x = torch.ones(3, 2)
    assert block.solve(x, raise_on_failure=False).status is ct.Status.NON_FINITE
    with pytest.raises(ct.SolveError, match="not finite"):
        block.solve(x)


@pytest.mark.parametrize("buckets", [7, 10, 13])
def test_steps_over_a_part_of_the_span_read_their_own_buckets(buckets):
    block = ct.ODEBlock(nn.Linear(1, 1), ct.PiecewiseConstant(buckets), ct.Euler(buckets)).double()
    with torch.no_grad():
        block.field.weight.zero_()
        block.field.bias.copy_(torch.arange(buckets)[:, None])
    z = torch.zeros(1, 1, dtype=torch.float64)
    for n in range(1, buckets):
        whole = block.solve(z, save_at=[n / buckets]).z[0]
        part = block.solve(z, span=(0, n / buckets), solver=ct.Euler(n)).final
        rest = block.solve(part, span=(n / buckets, 1), solver=ct.Euler(buckets - n)).final
        torch.testing.assert_close(part, whole)
        torch.testing.assert_close(rest, block(z))


class Given(ct.Field):
    def forward(self, s, z, x):
        return 0 * z + x(s)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_steps_over_a_part_of_the_span_read_their_own_piece_of_a_held_signal(dtype):
    signal = ct.Signal([n / 10 for n in range(11)], torch.arange(11.0).to(dtype), "previous")
    block, z = ct.ODEBlock(Given(), solver=ct.Euler(steps=10)), torch.zeros(1, 1, dtype=dtype)
    for n in range(1, 10):
        there = block.solve(z, span=(0, n / 10), solver=ct.Euler(n), control=signal).final
        back = block.solve(there, span=(n / 10, 0), solver=ct.Euler(n), control=signal).final
        torch.testing.assert_close(there, z + n * (n - 1) / 20)
        torch.testing.assert_close(back, z)


def test_a_held_signal_has_its_last_value_from_its_end_on():
    signal = ct.Signal([0.0, 1.0], torch.tensor([[1.0], [2.0]]), "previous")
    assert [signal(torch.tensor(s)).item() for s in (0.0, 0.9, 1.0, 2.0)] == [1, 1, 2, 2]
