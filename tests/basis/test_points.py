"""How many Gauss points a cell gets, against quadrature that was carried out."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from continua.basis import FAMILIES, Fourier, GaussianRBF, MultiquadricRBF
from continua.basis._basis import gauss_points


def wave_error(phase: float, points: int) -> float:
    """The largest error on a cell of length two, of all shifts of a wave of size one."""
    x, w = np.polynomial.legendre.leggauss(points)
    exact = 2 * math.sin(phase / 2) / (phase / 2)
    shifts = np.linspace(0, math.pi, 17)
    return max(abs(w @ np.cos(phase * x / 2 + p) - exact * math.cos(p)) for p in shifts)


@given(st.floats(1e-3, 200), st.floats(1e-11, 0.1))
def test_a_wave_is_integrated_to_the_error_that_is_allowed(phase, error):
    assert wave_error(phase, gauss_points(phase, error)) <= 2 * error + 1e-13


@pytest.mark.parametrize(
    "basis", [GaussianRBF(2000), MultiquadricRBF(2000), Fourier(5000)], ids=repr
)
def test_very_fast_functions_get_a_number_all_the_same(basis):
    assert 1 <= basis.points_on(1.0, 1e-9) <= basis.degree_on(1.0) // 2 + 1


def test_any_error_is_as_good_as_one_point():
    assert gauss_points(5.0, 1.0) == 1


@given(st.floats(0.5, 10), st.floats(1e-11, 1e-3))
def test_short_waves_get_no_point_too_many(phase, error):
    fewest = gauss_points(phase, error)
    assert fewest == 1 or wave_error(phase, fewest - 1) > error / 5


@pytest.mark.parametrize("error", [1e-2, 1e-5, 1e-8])
@pytest.mark.parametrize("share", [1.0, 0.5, 0.1])
@pytest.mark.parametrize("size", [1, 4, 9])
@pytest.mark.parametrize("family", FAMILIES)
def test_every_function_is_integrated_on_every_cell(family, size, share, error):
    """Cells as a solver makes them: of one width at most, and broken where the basis is."""
    basis = FAMILIES[family].of_size(max(size, 2) if family != "Constant" else 1)
    starts = [*torch.linspace(0, 1, 6, dtype=torch.float64)[:-1].tolist(), 1 - share]
    breaks = sorted({*starts, *basis.breakpoints})
    x, w = (torch.from_numpy(a) for a in np.polynomial.legendre.leggauss(64))
    points = basis.points_on(share, error)
    near, few = (torch.from_numpy(a) for a in np.polynomial.legendre.leggauss(points))
    for start in breaks[:-1]:
        end = min(start + share, 1.0, *(b for b in basis.breakpoints if b > start))
        middle, half = (start + end) / 2, (end - start) / 2
        exact = w @ basis(middle + half * x)
        found = few @ basis(middle + half * near)
        size_of = basis(torch.linspace(0, 1, 257, dtype=torch.float64)).abs().amax(0)
        assert ((found - exact).abs() <= 2 * error * size_of + 1e-12 * size_of.max()).all()
