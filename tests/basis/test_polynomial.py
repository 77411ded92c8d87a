import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.polynomial import chebyshev, legendre, polynomial

from basis.members import tensor
from continua import Chebyshev, Constant, Legendre, Polynomial

VANDERMONDE = {
    Polynomial: polynomial.polyvander,
    Legendre: lambda s, degree: legendre.legvander(2 * s - 1, degree),
    Chebyshev: lambda s, degree: chebyshev.chebvander(2 * s - 1, degree),
}
every_family = pytest.mark.parametrize("family", VANDERMONDE)


def test_a_line_at_known_depths():
    theta = Polynomial(2)(tensor(0.25, 0.5, 1.0)) @ tensor(1, 3)
    assert theta.tolist() == [1.75, 2.5, 4.0]


@every_family
@given(size=st.integers(1, 12), s=st.floats(-0.5, 1.5))
def test_against_numpy(family, size, s):
    expected = torch.from_numpy(VANDERMONDE[family](np.array([s]), size - 1))
    tolerance = 1e-13 * (1 + expected.abs().max().item())
    torch.testing.assert_close(family(size)(tensor(s)), expected, rtol=0, atol=tolerance)


@given(size=st.integers(1, 30), angle=st.floats(0, np.pi))
def test_chebyshev_is_the_cosine_of_a_multiple(size, angle):
    s = tensor(0.5 + 0.5 * np.cos(angle))
    expected = np.cos(np.arange(size) * angle)
    np.testing.assert_allclose(Chebyshev(size)(s)[0].numpy(), expected, rtol=0, atol=1e-10)


@given(size=st.integers(1, 30))
def test_values_at_the_ends(size):
    signs = (-1.0) ** torch.arange(size, dtype=torch.float64)
    for family in (Legendre, Chebyshev):
        assert torch.equal(family(size)(tensor(0.0))[0], signs)
        assert torch.equal(family(size)(tensor(1.0))[0], torch.ones_like(signs))


@every_family
@given(size=st.integers(1, 12), more=st.integers(0, 12))
def test_a_smaller_member_is_the_beginning_of_a_larger_one(family, size, more):
    s = torch.linspace(-0.5, 1.5, 9, dtype=torch.float64)
    assert torch.equal(family(size)(s), family(size + more)(s)[:, :size])


@given(s=st.floats(-10, 10), size=st.integers(1, 9))
def test_constant(s, size):
    assert Constant()(tensor(s)).tolist() == [[1.0]]
    assert Constant.of_size(size) == Constant()
