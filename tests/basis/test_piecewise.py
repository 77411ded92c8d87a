import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import one_hot

from basis.members import tensor
from continua import ArgumentError, BSpline, DiscontinuousLinear, PiecewiseConstant, PiecewiseLinear

HALF = (torch.float16, torch.bfloat16)


def function(basis, *coefficients):
    """θ(s), a number for a number."""
    c = tensor(*coefficients)
    return lambda s, side="right": (basis(tensor(s)[0], side) @ c).item()


# -- the oracles of Stateful ODE-Nets ----------------------------------------------------------


def test_buckets_at_known_depths():
    theta = function(PiecewiseConstant(3), 1, 3, 2)
    assert [theta(0), theta(0.5), theta(1.000001)] == [1, 3, 2]


def test_hats_at_known_depths():
    theta = function(PiecewiseLinear(3), 1, 3, 2)
    assert [theta(0), theta(0.25), theta(0.5), theta(1)] == [1, 2, 3, 2]


@given(s=st.floats(-2, 3))
def test_a_single_hat_is_a_constant(s):
    assert function(PiecewiseLinear(1), 3)(s) == 3


def test_lines_at_known_depths():
    theta = function(DiscontinuousLinear(4), 1, 3, 7, 5)
    assert [theta(0), theta(0.25), theta(0.75), theta(1)] == [1, 2, 6, 5]
    assert [theta(0.5, "left"), theta(0.5, "right")] == [3, 7]


@pytest.mark.parametrize(
    ("basis", "coarse", "fine"),
    [
        (PiecewiseConstant(2), [2, 3], [2, 2, 3, 3]),
        (PiecewiseLinear(1), [2], [2, 2]),
        (PiecewiseLinear(2), [2, 3], [2, 2.5, 3]),
        (PiecewiseLinear(3), [2, 3, 1], [2, 2.5, 3, 2, 1]),
        (DiscontinuousLinear(2), [2, 3], [2, 2.5, 2.5, 3]),
    ],
    ids=repr,
)
def test_refinement_at_known_coefficients(basis, coarse, fine):
    finer, matrix = basis.refined()
    assert finer == type(basis)(len(fine))
    assert (matrix @ tensor(*coarse)).tolist() == fine


@given(size=st.integers(1, 20), factor=st.integers(1, 5))
def test_sizes_of_refinements(size, factor):
    assert PiecewiseConstant(size).refined(factor)[0].size == factor * size
    assert DiscontinuousLinear(2 * size).refined(factor)[0].size == factor * 2 * size
    expected = factor * (size - 1) + 1 if size > 1 else factor
    assert PiecewiseLinear(size).refined(factor)[0].size == expected


# -- cells -------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, *HALF], ids=str)
def test_every_grid_point_is_in_its_own_cell(dtype):
    for N in range(1, 108):
        s = torch.tensor([n / N for n in range(N + 1)], dtype=dtype)
        assert len(s.unique()) == N + 1
        n = torch.arange(N + 1)
        # From the right n/N begins cell n, from the left it ends the cell before.
        for side, cell, end in (
            ("right", n.clamp(max=N - 1), (2 * n).clamp(max=2 * N - 1)),
            ("left", (n - 1).clamp(min=0), (2 * n - 1).clamp(min=0)),
        ):
            expected = one_hot(cell, N).to(dtype)
            assert torch.equal(PiecewiseConstant(N)(s, side), expected), (N, side)
            assert torch.equal(BSpline(N, degree=0)(s, side), expected), (N, side)
            lines = DiscontinuousLinear(2 * N)(s, side)
            assert torch.equal(lines.round(), one_hot(end, 2 * N).to(dtype)), (N, side)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_a_grid_divided_in_its_own_precision_hits_its_cells(dtype):
    for N in range(1, 108):
        n = torch.arange(N + 1)
        cell = PiecewiseConstant(N)(n.to(dtype) / N).argmax(-1)
        assert torch.equal(cell, n.clamp(max=N - 1)), N


@given(size=st.integers(1, 107), s=st.floats(0, 1, exclude_max=True))
def test_a_depth_between_breakpoints_is_in_its_cell(size, s):
    cell = PiecewiseConstant(size)(tensor(s)[0]).argmax().item()
    assert cell / size <= s < (cell + 1) / size


@given(size=st.integers(2, 107), data=st.data())
def test_hats_are_one_at_their_node(size, data):
    k = data.draw(st.integers(0, size - 1))
    hats = PiecewiseLinear(size)(tensor(k / (size - 1))[0])
    torch.testing.assert_close(hats, torch.eye(size, dtype=torch.float64)[k], rtol=0, atol=1e-13)


@given(size=st.integers(1, 40), s=st.floats(-1, 2), side=st.sampled_from(["left", "right"]))
def test_partition_of_unity(size, s, side):
    for basis in (PiecewiseConstant(size), PiecewiseLinear(size), DiscontinuousLinear(2 * size)):
        phi = basis(tensor(s)[0], side)
        assert (phi >= 0).all()
        assert phi.sum().item() == pytest.approx(1, abs=1e-15)


@given(size=st.integers(1, 20), s=st.floats(-1, 2), c=st.data())
def test_values_stay_between_their_neighbours(size, s, c):
    c = tensor(*c.draw(st.lists(st.floats(-5, 5), min_size=size, max_size=size)))
    for basis in (PiecewiseConstant(size), PiecewiseLinear(size)):
        value = basis(tensor(s)[0]) @ c
        assert c.min() - 1e-12 <= value <= c.max() + 1e-12


# -- nodes -------------------------------------------------------------------------------------


@given(size=st.integers(1, 64))
def test_nodes(size):
    def depths(basis):
        return [node.depth for node in basis.nodes]

    assert depths(PiecewiseConstant(size)) == [(k + 0.5) / size for k in range(size)]
    hats = [k / (size - 1) for k in range(size)] if size > 1 else [0.5]
    assert depths(PiecewiseLinear(size)) == hats
    lines = DiscontinuousLinear(2 * size)
    assert depths(lines) == [end / size for e in range(size) for end in (e, e + 1)]
    assert [node.side for node in lines.nodes] == ["right", "left"] * size


@pytest.mark.parametrize("size", [1, 3, 7])
def test_lines_come_in_pairs(size):
    with pytest.raises(ArgumentError, match=str(size)):
        DiscontinuousLinear(size)
