"""Fitting coefficients to values."""

import math

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

import continua as ct
from basis.members import difference, every_basis, random, tensor
from continua import ArgumentError, ShapeError
from continua.basis import Point, least_squares, sample

few = settings(max_examples=4)


@every_basis
def test_fit_is_least_squares_when_determined(basis):
    s, values = random(40).sort()[0], random(40, 2, seed=1)
    expected, *_ = np.linalg.lstsq(basis(s).numpy(), values.numpy(), rcond=None)
    got = ct.fit_coefficients(basis, s, values)
    assert difference(basis, got, basis, torch.from_numpy(expected)) < 1e-9
    prior = random(basis.size, 2, seed=2)
    assert difference(basis, ct.fit_coefficients(basis, s, values, prior), basis, got) < 1e-9


@every_basis
def test_fit_recovers_a_function_of_the_basis(basis):
    c = random(basis.size, 3, 2)
    values = (sample(basis, basis.nodes) @ c.flatten(1)).unflatten(-1, (3, 2))
    got = ct.fit_coefficients(basis, basis.nodes, values)
    assert got.shape == c.shape
    assert difference(basis, got.flatten(1), basis, c.flatten(1)) < 1e-10


@every_basis
@few
@given(count=st.integers(1, 8), seed=st.integers(0, 100))
@example(count=5, seed=99)
def test_fit_keeps_the_prior_where_nothing_is_known(basis, count, seed):
    s, values, prior = random(count, seed=seed), random(count, seed=seed + 1), random(basis.size)
    c = ct.fit_coefficients(basis, s, values, prior)
    assert torch.isfinite(c).all()
    # What changed lies in the directions that the points see.
    phi = basis(s)
    seen = torch.linalg.pinv(phi, rtol=1e-12) @ phi
    change = c - prior
    tolerance = 1e-7 * (1 + change.abs().max().item())
    torch.testing.assert_close(seen @ change, change, rtol=0, atol=tolerance)
    # A function that is zero at every point keeps its coefficient to the last bit.
    unseen = (phi == 0).all(0)
    assert torch.equal(c[unseen], prior[unseen])


def test_fit_of_one_cell_leaves_the_others():
    prior = tensor(1, 2, 3, 4)
    c = ct.fit_coefficients(ct.PiecewiseConstant(4), [0.3, 0.4], tensor(5, 7), prior)
    assert c.tolist() == pytest.approx([1, 6, 3, 4], rel=1e-15)
    assert torch.equal(c[[0, 2, 3]], prior[[0, 2, 3]])
    c = ct.fit_coefficients(
        ct.PiecewiseConstant(4), [Point(0.25, "left"), Point(0.5, "right")], tensor(8, 9)
    )
    assert c.tolist() == pytest.approx([8, 0, 9, 0], rel=1e-15)


@given(count=st.integers(1, 12))
def test_fit_that_already_fits_changes_nothing(count):
    basis, prior, s = ct.PiecewiseLinear(6), random(6), random(count, seed=3)
    c = ct.fit_coefficients(basis, s, basis(s) @ prior, prior)
    torch.testing.assert_close(c, prior, rtol=0, atol=1e-14)


@pytest.mark.parametrize(
    "dtype",
    [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64],
    ids=str,
)
@pytest.mark.parametrize("count", [5, 300])
def test_fit_in_the_dtype_of_the_values(dtype, count):
    s = tensor(*((i + 0.5) / count for i in range(count)))
    for basis in (ct.PiecewiseConstant(4), ct.Legendre(3)):
        c = ct.fit_coefficients(basis, s, torch.full((count, 2), 1.5, dtype=dtype))
        assert c.dtype == dtype
        eps = torch.finfo(dtype).eps
        one = ct.projection(ct.Constant(), basis).to(dtype)
        torch.testing.assert_close(c, 1.5 * one.expand(-1, 2), rtol=0, atol=10 * eps)


@pytest.mark.parametrize(
    ("s", "values", "prior", "message"),
    [
        ([0.1, 0.2], torch.ones(3), None, r"2 depths .* \[2, ...\], got \[3\]"),
        ([0.1, 0.2], torch.ones(()), None, r"got \[\]"),
        ([0.1], torch.ones(1, 2), torch.ones(3), r"\[3, 2\], got \[3\]"),
        ([0.1], torch.ones(1), torch.ones(4), r"\[3\], got \[4\]"),
        ([0.1], torch.ones(1, dtype=torch.int64), None, "torch.int64"),
        (torch.rand(2, 2), torch.ones(2), None, r"\[2, 2\]"),
        (torch.tensor(0.5), torch.ones(1), None, r"\[\]"),
    ],
)
def test_fit_refuses_wrong_shapes(s, values, prior, message):
    with pytest.raises(ShapeError, match=message):
        ct.fit_coefficients(ct.Legendre(3), s, values, prior)


def test_fit_refuses_no_points():
    for none in ([], torch.ones(0)):
        with pytest.raises(ArgumentError, match="at least one"):
            ct.fit_coefficients(ct.Legendre(3), none, torch.ones(0, 2))


@pytest.mark.parametrize("depth", [math.nan, math.inf])
def test_fit_refuses_a_depth_that_is_no_number(depth):
    with pytest.raises(ArgumentError, match=repr(depth)):
        ct.fit_coefficients(ct.Legendre(3), [0.5, depth], torch.ones(2))


@given(rows=st.integers(1, 7), columns=st.integers(1, 7), rank=st.integers(0, 7))
def test_least_squares_is_the_pseudo_inverse(rows, columns, rank):
    phi = random(rows, rank) @ random(rank, columns, seed=1)
    expected = np.linalg.pinv(phi.numpy(), rcond=1e-12)
    got = least_squares(phi, rcond=1e-12)
    scale = 1 + np.abs(expected).max()
    np.testing.assert_allclose(got.numpy(), expected, rtol=0, atol=1e-9 * scale)
