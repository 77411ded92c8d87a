"""From one basis to another: Gram matrices, projection, interpolation, fitting."""

import functools
import itertools

import numpy as np
import pytest
import scipy.integrate
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import continua as ct
from basis.members import (
    ALL,
    FAMILIES,
    RADIAL,
    difference,
    every_basis,
    eye,
    members,
    of_size,
    random,
    tensor,
)
from continua.basis import quadrature, sample

PAIRS = list(itertools.product(FAMILIES.values(), repeat=2))

every_pair_of_families = pytest.mark.parametrize(
    ("source_family", "target_family"),
    PAIRS,
    ids=lambda family: family.__name__,
)
few = settings(max_examples=4)  # of each pair of families


def member(family, largest=8):
    return st.sampled_from(members(family, largest))


# -- which space lies in which -----------------------------------------------------------------

# A piecewise polynomial space is (cells, degree, how many derivatives are continuous, -1 if the
# functions jump); a trigonometric one is (order, period). Any other lies in itself alone.
INFINITELY = 1000
SPLINES = {
    ct.Constant: lambda b: (1, 0, INFINITELY),
    ct.PiecewiseConstant: lambda b: (b.size, 0, -1),
    ct.PiecewiseLinear: lambda b: (max(b.size - 1, 1), min(b.size - 1, 1), 0),
    ct.DiscontinuousLinear: lambda b: (b.size // 2, 1, -1),
    ct.BSpline: lambda b: (b.size - b.degree, b.degree, b.degree - 1),
    ct.Polynomial: lambda b: (1, b.size - 1, INFINITELY),
    ct.Legendre: lambda b: (1, b.size - 1, INFINITELY),
    ct.Chebyshev: lambda b: (1, b.size - 1, INFINITELY),
}


def contains(target, source):
    """Whether every function of the source is a function of the target."""
    if source == target:
        return True
    if is_constant(source):
        return type(target) not in RADIAL
    if isinstance(source, ct.Fourier) and isinstance(target, ct.Fourier):
        ratio = target.period / source.period
        return ratio == round(ratio) and source.order * ratio <= target.order
    if type(source) in SPLINES and type(target) in SPLINES:
        cells, degree, smooth = SPLINES[type(source)](source)
        fine, higher, smoother = SPLINES[type(target)](target)
        nested = cells == 1 or (fine % cells == 0 and smooth >= smoother)
        return nested and degree <= higher
    return False


def is_constant(basis):
    space = SPLINES.get(type(basis), lambda b: None)(basis)
    return (isinstance(basis, ct.Fourier) and basis.order == 0) or (space and space[:2] == (1, 0))


@functools.cache
def contained_pairs(source_family, target_family):
    return [
        (source, target)
        for source in members(source_family, 5)
        for target in members(target_family, 8)
        if contains(target, source)
    ]


every_containment = pytest.mark.parametrize(
    ("source_family", "target_family"),
    [pair for pair in PAIRS if contained_pairs(*pair)],
    ids=lambda family: family.__name__,
)


def test_the_table_of_containment():
    """Some that must be in it, some that must not."""
    for source, target in [
        (ct.PiecewiseConstant(2), ct.PiecewiseConstant(6)),
        (ct.PiecewiseConstant(3), ct.DiscontinuousLinear(12)),
        (ct.PiecewiseLinear(3), ct.PiecewiseLinear(5)),
        (ct.PiecewiseLinear(3), ct.DiscontinuousLinear(8)),
        (ct.PiecewiseLinear(3), ct.BSpline(5, degree=1)),
        (ct.Legendre(2), ct.PiecewiseLinear(4)),
        (ct.Polynomial(4), ct.BSpline(7)),
        (ct.Chebyshev(3), ct.Legendre(3)),
        (ct.BSpline(5), ct.BSpline(7)),
        (ct.Fourier(2, period=0.5), ct.Fourier(4)),
        (ct.Constant(), ct.Fourier(3)),
    ]:
        assert contains(target, source)
        assert difference(target, ct.projection(source, target), source, eye(source.size)) < 1e-12
    for source, target in [
        (ct.PiecewiseConstant(2), ct.PiecewiseConstant(3)),
        (ct.PiecewiseConstant(2), ct.PiecewiseLinear(3)),
        (ct.PiecewiseLinear(3), ct.BSpline(6)),
        (ct.PiecewiseLinear(3), ct.PiecewiseLinear(6)),
        (ct.Legendre(4), ct.Polynomial(3)),
        (ct.BSpline(5), ct.Legendre(8)),
        (ct.Constant(), ct.GaussianRBF(3)),
        (ct.Fourier(1), ct.Fourier(1, period=2.0)),
        (ct.Fourier(1), ct.Legendre(9)),
    ]:
        assert not contains(target, source)
        assert difference(target, ct.projection(source, target), source, eye(source.size)) > 1e-6


# -- gram --------------------------------------------------------------------------------------


@every_pair_of_families
def test_gram_against_scipy(source_family, target_family):
    a, b = of_size(source_family, 4), of_size(target_family, 3) or target_family.of_size(2)

    def product(s):
        s = torch.tensor(s, dtype=torch.float64)
        return torch.outer(a(s), b(s)).numpy()

    breakpoints = sorted({*a.breakpoints, *b.breakpoints})
    expected, _ = scipy.integrate.quad_vec(product, 0, 1, epsabs=1e-13, points=breakpoints[1:-1])
    np.testing.assert_allclose(ct.gram(a, b).numpy(), expected, rtol=0, atol=1e-11)
    np.testing.assert_allclose(ct.gram(b, a).numpy(), expected.T, rtol=0, atol=1e-11)


@given(a=st.sampled_from(ALL), b=st.sampled_from(ALL))
def test_gram_is_symmetric(a, b):
    gram = ct.gram(a, b)
    assert gram.shape == (a.size, b.size)
    torch.testing.assert_close(gram, ct.gram(b, a).T, rtol=1e-14, atol=1e-14)


@every_basis
def test_gram_of_a_basis_is_positive(basis):
    gram = ct.gram(basis, basis)
    assert torch.linalg.eigvalsh(gram).min() > 0


@given(size=st.integers(1, 20))
def test_known_gram_matrices(size):
    n = torch.arange(size, dtype=torch.float64)
    for basis, expected in [
        (ct.Legendre(size), (1 / (2 * n + 1)).diag()),
        (ct.PiecewiseConstant(size), eye(size) / size),
        (ct.Polynomial(size), 1 / (n + n[:, None] + 1)),  # Hilbert's matrix
    ]:
        torch.testing.assert_close(ct.gram(basis, basis), expected, rtol=0, atol=1e-14)


@pytest.mark.parametrize(("size", "width"), [(1, 0.02), (9, 0.02), (3, 5.0)])
@pytest.mark.parametrize("family", RADIAL)
def test_narrow_and_wide_radial_functions(family, size, width):
    a, b = family(size, width), ct.PiecewiseConstant(3)

    def product(s):
        s = torch.tensor(s, dtype=torch.float64)
        return torch.outer(a(s), b(s)).numpy()

    expected, _ = scipy.integrate.quad_vec(product, 0, 1, epsabs=1e-13, points=(1 / 3, 2 / 3))
    np.testing.assert_allclose(ct.gram(a, b).numpy(), expected, rtol=1e-12, atol=1e-11)


@given(a=st.sampled_from(ALL), b=st.sampled_from(ALL))
def test_quadrature_never_straddles_a_breakpoint(a, b):
    s, w = quadrature(a, b)
    assert (w > 0).all()
    assert w.sum().item() == pytest.approx(1, abs=1e-14)
    breakpoints = {*a.breakpoints, *b.breakpoints}
    assert not breakpoints & set(s.tolist())
    for low, high in itertools.pairwise(sorted(breakpoints)):
        within = (low < s) & (s < high)
        assert w[within].sum().item() == pytest.approx(high - low, abs=1e-14)


# -- projection --------------------------------------------------------------------------------


@every_pair_of_families
@few
@given(data=st.data())
def test_what_projection_leaves_is_orthogonal_to_the_target(source_family, target_family, data):
    source, target = data.draw(member(source_family)), data.draw(member(target_family))
    P = ct.projection(source, target)
    assert P.shape == (target.size, source.size)
    assert P.dtype == torch.float64
    G = ct.gram(target, target)
    left = ct.gram(target, source) - G @ P
    scale = (G.abs() @ P.abs()).max() + 1
    assert left.abs().max() <= 1e-12 * scale


@every_containment
def test_projection_is_exact_where_the_target_contains_the_source(source_family, target_family):
    for source, target in contained_pairs(source_family, target_family):
        P = ct.projection(source, target)
        assert difference(target, P, source, eye(source.size)) < 1e-12, (source, target)


@every_containment
def test_projection_there_and_back_changes_nothing(source_family, target_family):
    for source, target in contained_pairs(source_family, target_family):
        there, back = ct.projection(source, target), ct.projection(target, source)
        assert difference(source, back @ there, source, eye(source.size)) < 1e-11, (source, target)


def test_a_constant_in_many_buckets_is_exact():
    """A small file asked for 4,096, whose least squares take minutes."""
    for size in (1, 3, 7, 4096):
        found = ct.projection(ct.Constant(), ct.PiecewiseConstant(size))
        assert torch.equal(found, torch.ones(size, 1, dtype=torch.float64))


@every_basis
def test_projection_onto_itself_is_the_identity(basis):
    assert torch.equal(ct.projection(basis, basis), eye(basis.size))


@every_pair_of_families
@few
@given(data=st.data())
def test_projection_through_a_finer_target_is_the_same(source_family, target_family, data):
    if target_family in RADIAL:
        return
    source, target = data.draw(member(source_family, 5)), data.draw(member(target_family, 5))
    finer, _ = target.refined()
    via = ct.projection(finer, target) @ ct.projection(source, finer)
    # The conditions of both changes multiply, hence no tighter.
    assert difference(target, via, target, ct.projection(source, target)) < 1e-9


def test_halving_buckets_is_the_pairwise_mean_to_the_last_bit():
    for size in range(1, 65):
        c = (random(2 * size, 3, seed=size) - 0.5) * 10 ** (6 * random(2 * size, 3))
        P = ct.projection(ct.PiecewiseConstant(2 * size), ct.PiecewiseConstant(size))
        assert torch.equal(P @ c, (c[0::2] + c[1::2]) / 2), size


@pytest.mark.parametrize(("source", "target"), [(16, 8), (8, 4), (4, 2), (2, 1)])
def test_halving_buckets_has_exact_weights(source, target):
    P = ct.projection(ct.PiecewiseConstant(source), ct.PiecewiseConstant(target))
    expected = torch.zeros(target, source, dtype=torch.float64)
    for k in range(target):
        expected[k, 2 * k : 2 * k + 2] = 0.5
    assert torch.equal(P, expected)


@given(source=st.integers(1, 40), target=st.integers(1, 40))
def test_buckets_onto_buckets_is_the_share_of_the_overlap(source, target):
    a, b = ct.PiecewiseConstant(source), ct.PiecewiseConstant(target)
    P = ct.projection(a, b)
    torch.testing.assert_close(P, target * ct.gram(b, a), rtol=0, atol=1e-13)
    torch.testing.assert_close(P.sum(1), torch.ones(target, dtype=torch.float64))


@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
def test_projection_keeps_the_mean_where_the_target_has_constants(family):
    if family in RADIAL:
        return
    mean = ct.gram(ct.Constant(), family.of_size(4))[0]
    for source in ALL:
        P = ct.projection(source, family.of_size(4))
        torch.testing.assert_close(mean @ P, ct.gram(ct.Constant(), source)[0], rtol=0, atol=1e-12)


@given(order=st.integers(0, 4), more=st.integers(0, 20))
def test_a_fourier_model_onto_buckets_and_back(order, more):
    """Each mean over a cell dampens a harmonic by a cardinal sine."""
    fourier, buckets = ct.Fourier(order), ct.PiecewiseConstant(2 * order + 1 + more)
    back = ct.projection(buckets, fourier) @ ct.projection(fourier, buckets)
    harmonic = np.repeat(np.arange(order + 1), 2)[1:]
    expected = torch.from_numpy(np.sinc(harmonic / buckets.size) ** 2).diag()
    torch.testing.assert_close(back, expected, rtol=0, atol=1e-12)


def test_changing_the_answer_does_not_change_the_next():
    a, b = ct.Legendre(3), ct.PiecewiseLinear(4)
    for change in (ct.projection, ct.interpolation, ct.gram):
        answer = change(a, b)
        before = answer.clone()
        answer.zero_()
        assert torch.equal(change(a, b), before)


# -- interpolation -----------------------------------------------------------------------------


@every_pair_of_families
@few
@given(data=st.data())
def test_interpolation_agrees_at_the_nodes_of_the_target(source_family, target_family, data):
    source, target = data.draw(member(source_family)), data.draw(member(target_family))
    matrix = ct.interpolation(source, target)
    assert matrix.shape == (target.size, source.size)
    assert matrix.dtype == torch.float64
    got, expected = sample(target, target.nodes) @ matrix, sample(source, target.nodes)
    tolerance = 1e-10 * (1 + expected.abs().max().item())
    torch.testing.assert_close(got, expected, rtol=0, atol=tolerance)


@every_containment
def test_interpolation_is_exact_where_the_target_contains_the_source(source_family, target_family):
    for source, target in contained_pairs(source_family, target_family):
        matrix = ct.interpolation(source, target)
        assert difference(target, matrix, source, eye(source.size)) < 1e-10, (source, target)


@every_basis
def test_interpolation_reads_buckets_at_midpoints_and_hats_at_nodes(basis):
    for target, depths in [
        (ct.PiecewiseConstant(1), [1 / 2]),
        (ct.PiecewiseConstant(3), [1 / 6, 1 / 2, 5 / 6]),
        (ct.PiecewiseLinear(1), [1 / 2]),
        (ct.PiecewiseLinear(4), [0, 1 / 3, 2 / 3, 1]),
    ]:
        got = ct.interpolation(basis, target)
        torch.testing.assert_close(got, basis(tensor(*depths)), rtol=0, atol=1e-15)
    lines = ct.interpolation(basis, ct.DiscontinuousLinear(4))
    torch.testing.assert_close(lines[0::2], basis(tensor(0, 0.5), "right"), rtol=0, atol=1e-15)
    torch.testing.assert_close(lines[1::2], basis(tensor(0.5, 1), "left"), rtol=0, atol=1e-15)


def test_a_midpoint_between_two_buckets_takes_the_right_one():
    for size in range(1, 65):
        picked = ct.interpolation(ct.PiecewiseConstant(2 * size), ct.PiecewiseConstant(size))
        assert torch.equal(picked, eye(2 * size)[1::2]), size
