import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from basis.members import RADIAL, tensor
from continua import ArgumentError, GaussianRBF, MultiquadricRBF

FORMULA = {
    GaussianRBF: lambda r: math.exp(-(r**2) / 2),
    MultiquadricRBF: lambda r: math.sqrt(1 + r**2),
}
every_family = pytest.mark.parametrize("family", RADIAL)


@every_family
@given(size=st.integers(1, 12), s=st.floats(-1, 2), width=st.none() | st.floats(0.05, 2))
def test_against_the_formula(family, size, s, width):
    basis = family(size, width)
    assert basis.width == (width or (1 / (size - 1) if size > 1 else 1.0))
    centres = [k / (size - 1) for k in range(size)] if size > 1 else [0.5]
    expected = [FORMULA[family]((s - centre) / basis.width) for centre in centres]
    assert basis(tensor(s)[0]).tolist() == pytest.approx(expected, rel=1e-12)
    assert [node.depth for node in basis.nodes] == centres


@every_family
@given(size=st.integers(1, 12))
def test_mirror_images(family, size):
    basis = family(size)
    s = tensor(0.1, 0.37, 0.8)
    assert basis(s).flatten().tolist() == pytest.approx(basis(1 - s).flip(-1).flatten().tolist())


@every_family
def test_the_default_width_is_the_distance_of_two_centres(family):
    assert family(5) == family(5, 0.25) == family(5, width=0.25)
    assert family(5) != family(5, 0.3)


@every_family
def test_half_of_a_basis_keeps_a_width_that_was_chosen(family):
    assert family(8, 0.5).halved() == family(4, 0.5)
    assert family(8).halved() == family(8, 1 / 7).halved() == family(4)
    assert family(1).halved() == family(1)


@every_family
@pytest.mark.parametrize("width", [0, -0.5, math.nan, math.inf, "1", True, 1j], ids=repr)
def test_a_width_that_cannot_be(family, width):
    with pytest.raises(ArgumentError, match="width") as error:
        family(3, width)
    assert repr(width) in str(error.value)


@every_family
def test_refinement_names_a_remedy(family):
    with pytest.raises(ArgumentError, match=r"BSpline or Legendre basis, then refine") as error:
        family(3).refined(2)
    assert repr(family(3)) in str(error.value)


@every_family
def test_the_default_width_follows_the_number_of_centres(family):
    assert family(8).resized(2) == family(2)
    assert family(9).resized(4).halved() == family(2)
    assert family(8, width=0.3).resized(2) == family(2, width=0.3)
