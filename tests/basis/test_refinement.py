"""Refinement and half of every basis."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import continua as ct
from basis.members import (
    RADIAL,
    difference,
    every_basis,
    every_family,
    eye,
    of_size,
)
from continua import ArgumentError

sizes = st.integers(1, 24)


@every_family
@given(size=st.integers(1, 10), factor=st.integers(1, 4))
def test_refinement_keeps_the_function(family, size, factor):
    basis = of_size(family, size) or family.of_size(size + 1)
    if family in RADIAL:
        with pytest.raises(ArgumentError, match="BSpline or Legendre"):
            basis.refined(factor)
        return
    finer, matrix = basis.refined(factor)
    assert type(finer) is family
    assert matrix.dtype == torch.float64
    assert matrix.shape == (finer.size, basis.size)
    assert difference(finer, matrix, basis, eye(basis.size)) < 1e-12


@every_basis
def test_refinement_by_one_changes_nothing(basis):
    if type(basis) not in RADIAL:
        same, matrix = basis.refined(1)
        assert same == basis
        assert torch.equal(matrix, eye(basis.size))


@every_basis
def test_refinement_by_two_twice_is_by_four(basis):
    if type(basis) in RADIAL:
        return
    once, first = basis.refined()
    twice, second = once.refined()
    at_once, both = basis.refined(4)
    if isinstance(basis, ct.PiecewiseLinear | ct.Fourier) and twice != at_once:
        assert min(basis.size, once.size) == 1  # a single function has no width to halve
    else:
        assert twice == at_once
        assert difference(twice, second @ first, at_once, both) < 1e-12


@every_family
@pytest.mark.parametrize("factor", [0, -2, 1.5, True, None, "2"], ids=repr)
def test_refinement_refuses_a_factor(family, factor):
    basis = of_size(family, 4)
    pattern = "BSpline or Legendre" if family in RADIAL else repr(factor)
    with pytest.raises(ArgumentError, match=pattern):
        basis.refined(factor)


@pytest.mark.parametrize(
    ("basis", "expected"),
    [
        (ct.PiecewiseConstant(8), ct.PiecewiseConstant(4)),
        (ct.PiecewiseConstant(1), ct.PiecewiseConstant(1)),
        (ct.PiecewiseLinear(5), ct.PiecewiseLinear(3)),
        (ct.PiecewiseLinear(2), ct.PiecewiseLinear(1)),
        (ct.DiscontinuousLinear(2), ct.DiscontinuousLinear(2)),
        (ct.DiscontinuousLinear(8), ct.DiscontinuousLinear(4)),
        (ct.Fourier(4, period=2.0), ct.Fourier(2, period=2.0)),
        (ct.BSpline(6, degree=2), ct.BSpline(4, degree=2)),
        (ct.Legendre(6), ct.Legendre(3)),
        (ct.Polynomial(1), ct.Polynomial(1)),
        (ct.Fourier(0), ct.Fourier(0)),
        (ct.BSpline(4), ct.BSpline(4)),
        (ct.Constant(), ct.Constant()),
    ],
)
def test_half_of_a_basis(basis, expected):
    assert basis.halved() == expected


@every_family
@given(size=sizes)
def test_half_is_of_the_family_and_no_larger(family, size):
    basis = of_size(family, size) or family.of_size(size + 1)
    half = basis.halved()
    assert type(half) is family
    assert half.size <= basis.size
    if family not in RADIAL and basis.size > 1:
        assert basis.refined(2)[0].halved() == basis
