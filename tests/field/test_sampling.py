"""Bases at the evaluations of a solve."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import continua as ct
from continua.basis import FAMILIES, Point, sample
from continua.field import Sampling, contract, values_at
from continua.solve import SOLVERS, RungeKutta

METHODS = sorted(name for name, s in SOLVERS.items() if issubclass(s, RungeKutta))


def points_of(solver, steps):
    return [Point(float(s.depth), s.side) for s in SOLVERS[solver](steps=steps).stages((0, 1))]


@given(
    st.sampled_from(sorted(FAMILIES)),
    st.sampled_from(METHODS),
    st.integers(2, 9),
    st.integers(1, 9),
)
def test_every_evaluation_reads_the_basis(family, solver, size, steps):
    basis = FAMILIES[family].of_size(size)
    points = points_of(solver, steps)
    sampling = Sampling.of(basis, points)
    stack = torch.randn(basis.size, 3, dtype=torch.float64)
    expected = sample(basis, points) @ stack
    rows = values_at({"w": basis}, {"w": stack}, {basis: sampling.rows})["w"]
    torch.testing.assert_close(rows.index_select(0, sampling.picks), expected)
    torch.testing.assert_close(torch.stack([rows[i] for i in sampling.index]), expected)
    into = torch.zeros_like(stack)
    used = sorted(set(sampling.index))
    sampling.pull(used, [rows[i] for i in used], into)
    picks = sampling.rows if sampling.rows is not None else torch.eye(basis.size).double()
    expected = sum(torch.outer(picks[i], rows[i]) for i in used)
    torch.testing.assert_close(into, expected)


def test_buckets_are_indexed_not_multiplied():
    sampling = Sampling.of(ct.PiecewiseConstant(4), points_of("RK4", 4))
    assert sampling.rows is None
    stack = torch.randn(4, 3)
    basis = ct.PiecewiseConstant(4)
    assert values_at({"w": basis}, {"w": stack}, {basis: None})["w"] is stack


def test_equal_depths_are_evaluated_once():
    smooth = Sampling.of(ct.Fourier(2), points_of("RK4", 4))
    assert smooth.rows.shape == (9, 5)  # 16 evaluations at 9 depths
    jumping = Sampling.of(ct.DiscontinuousLinear(8), points_of("RK4", 4))
    assert jumping.rows.shape == (12, 8)  # the ends of a step differ from the next step's start


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex64])
def test_contract_keeps_dtype(dtype):
    rows = torch.rand(5, 3, dtype=torch.float64)
    assert contract(rows, torch.randn(3, 2, 2, dtype=dtype)).dtype == dtype


def test_contract_keeps_channels_last():
    stack = torch.randn(3, 8, 5, 5, 4).permute(0, 1, 4, 2, 3)
    rows = torch.rand(6, 3)
    out = contract(rows, stack)
    assert out[0].is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(out, contract(rows, stack.contiguous()))
