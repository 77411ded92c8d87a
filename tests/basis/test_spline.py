import numpy as np
import pytest
import scipy.interpolate
import torch
from hypothesis import given
from hypothesis import strategies as st

from basis.members import difference, tensor
from continua import ArgumentError, BSpline, PiecewiseConstant, PiecewiseLinear, Polynomial

degrees = st.integers(0, 5)


def oracle(basis):
    """The same splines in SciPy, on knots that are repeated at the ends."""
    inner = np.linspace(0, 1, basis.size - basis.degree + 1)
    knots = np.concatenate([np.zeros(basis.degree), inner, np.ones(basis.degree)])
    return scipy.interpolate.BSpline(knots, np.eye(basis.size), basis.degree)


@given(cells=st.integers(1, 20), degree=degrees, s=st.floats(0, 1, exclude_max=True))
def test_against_scipy(cells, degree, s):
    basis = BSpline(cells + degree, degree)
    if s * cells == round(s * cells):
        s = 0.0  # at a jump of degree 0 a rounding decides
    expected = oracle(basis)(s)
    np.testing.assert_allclose(basis(tensor(s)[0]).numpy(), expected, rtol=0, atol=1e-12)


@given(cells=st.integers(1, 12), degree=st.integers(1, 5), at=st.floats(0.05, 0.95))
def test_derivative_against_scipy(cells, degree, at):
    basis = BSpline(cells + degree, degree)
    s = (torch.arange(cells, dtype=torch.float64) + at) / cells
    _, got = torch.func.jvp(basis, (s,), (torch.ones_like(s),))
    expected = oracle(basis).derivative()(s.numpy())
    np.testing.assert_allclose(got.numpy(), expected, rtol=0, atol=1e-10 * basis.size)


@given(cells=st.integers(1, 20), degree=degrees, s=st.floats(-1, 2))
def test_partition_of_unity(cells, degree, s):
    phi = BSpline(cells + degree, degree)(tensor(s)[0])
    assert (phi >= 0).all()
    assert phi.sum().item() == pytest.approx(1, abs=1e-14)
    assert (phi != 0).sum() <= degree + 1


@given(cells=st.integers(1, 12), degree=degrees)
def test_clamped_at_the_ends(cells, degree):
    basis = BSpline(cells + degree, degree)
    eye = torch.eye(basis.size, dtype=torch.float64)
    torch.testing.assert_close(basis(tensor(0.0, 1.0)), eye[[0, -1]], rtol=0, atol=1e-15)


@given(size=st.integers(2, 20))
def test_low_degrees_are_buckets_and_hats(size):
    for spline, same in (
        (BSpline(size, 0), PiecewiseConstant(size)),
        (BSpline(size, 1), PiecewiseLinear(size)),
    ):
        assert spline.breakpoints == same.breakpoints
        assert spline.nodes == same.nodes
        eye = torch.eye(size, dtype=torch.float64)
        assert difference(spline, eye, same, eye) < 1e-13


@given(cells=st.integers(1, 8), degree=degrees)
def test_coefficients_at_the_nodes_of_a_line_are_its_values(cells, degree):
    """Greville's nodes: a spline whose coefficients lie on a line is that line."""
    basis = BSpline(cells + degree, degree)
    if degree > 0:
        c = 2 + 3 * tensor(*(node.depth for node in basis.nodes))
        assert difference(basis, c, Polynomial(2), tensor(2, 3)) < 1e-13


@given(cells=st.integers(1, 8), degree=degrees, factor=st.integers(1, 4))
def test_knot_insertion(cells, degree, factor):
    basis = BSpline(cells + degree, degree)
    finer, matrix = basis.refined(factor)
    assert finer == BSpline(factor * cells + degree, degree)
    eye = torch.eye(basis.size, dtype=torch.float64)
    assert difference(finer, matrix, basis, eye) < 1e-12
    # Each new coefficient is a mean of old ones: a refinement never overshoots.
    assert (matrix >= 0).all()
    torch.testing.assert_close(matrix.sum(1), torch.ones(finer.size, dtype=torch.float64))


@pytest.mark.parametrize(("size", "degree"), [(3, 3), (1, 1), (2, 5)])
def test_fewer_splines_than_the_degree_needs(size, degree):
    with pytest.raises(ArgumentError, match=f"{size} B-splines of degree {degree}"):
        BSpline(size, degree)


@pytest.mark.parametrize("degree", [-1, 1.5, True, None, "3"], ids=repr)
def test_a_degree_that_cannot_be(degree):
    with pytest.raises(ArgumentError, match=repr(degree)):
        BSpline(8, degree)


def test_of_size_is_cubic_once_it_can_be():
    assert [BSpline.of_size(size).degree for size in range(1, 7)] == [0, 1, 2, 3, 3, 3]
