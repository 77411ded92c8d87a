"""Functions of depth, and exact changes from one basis to another."""

from continua._values import known

from ._basis import Basis, Point, Side, sample
from ._change import fit_coefficients, gram, interpolation, least_squares, projection, quadrature
from ._piecewise import BSpline, DiscontinuousLinear, PiecewiseConstant, PiecewiseLinear
from ._whole import Chebyshev, Constant, Fourier, GaussianRBF, Legendre, MultiquadricRBF, Polynomial

__all__ = [
    "Basis", "FAMILIES", "Point", "Side",
    "BSpline", "Chebyshev", "Constant", "DiscontinuousLinear", "Fourier", "GaussianRBF",
    "Legendre", "MultiquadricRBF", "PiecewiseConstant", "PiecewiseLinear", "Polynomial",
    "fit_coefficients", "gram", "interpolation", "least_squares", "projection", "quadrature",
    "sample",
]  # fmt: skip

#: every family, by name
FAMILIES = known(Basis)
