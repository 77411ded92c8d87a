import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from basis.members import random, tensor
from continua import ArgumentError, Fourier, gram

orders = st.integers(0, 8)
depths = st.floats(-1, 2)


@given(order=orders, s=depths)
def test_period_two_pi_is_the_trigonometric_polynomial_of_nanode(order, s):
    basis = Fourier(order, period=2 * math.pi)
    a, b = random(order + 1, seed=1).tolist(), random(order + 1, seed=2).tolist()
    coefficients, expected = [a[0]], a[0]
    for n in range(1, order + 1):
        coefficients += [a[n], b[n]]
        expected += a[n] * math.cos(n * s) + b[n] * math.sin(n * s)
    theta = basis(tensor(s)[0]) @ tensor(*coefficients)
    assert theta.item() == pytest.approx(expected, abs=1e-13)


@given(order=orders, s=depths, period=st.floats(0.2, 5))
def test_against_the_formula(order, s, period):
    got = Fourier(order, period)(tensor(s)[0]).tolist()
    assert len(got) == 2 * order + 1
    for n in range(1, order + 1):
        angle = 2 * math.pi * n * s / period
        assert got[2 * n - 1] == pytest.approx(math.cos(angle), abs=1e-12)
        assert got[2 * n] == pytest.approx(math.sin(angle), abs=1e-12)
    assert got[0] == 1


@given(order=orders, s=depths, period=st.floats(0.2, 5))
def test_periodic(order, s, period):
    basis = Fourier(order, period)
    here, there = basis(tensor(s, s + period))
    torch.testing.assert_close(here, there, rtol=0, atol=1e-11)


@given(order=orders)
def test_orthogonal_over_its_period(order):
    expected = torch.full((2 * order + 1,), 0.5, dtype=torch.float64)
    expected[0] = 1
    torch.testing.assert_close(gram(*[Fourier(order)] * 2), expected.diag(), rtol=0, atol=1e-14)


@given(order=orders, factor=st.integers(1, 4), period=st.floats(0.2, 5))
def test_refinement_adds_harmonics(order, factor, period):
    larger, matrix = Fourier(order, period).refined(factor)
    assert larger == Fourier(order * factor if order else factor - 1, period)
    assert torch.equal(matrix, torch.eye(larger.size, 2 * order + 1, dtype=torch.float64))


@given(order=orders, period=st.floats(0.2, 5))
def test_nodes_lie_within_one_period(order, period):
    depths = [node.depth for node in Fourier(order, period).nodes]
    assert max(depths) - min(depths) < period


@pytest.mark.parametrize("period", [0, -1.0, math.nan, math.inf, "1", None, True, 1j], ids=repr)
def test_a_period_that_cannot_be(period):
    with pytest.raises(ArgumentError, match="period") as error:
        Fourier(2, period)
    assert repr(period) in str(error.value)
