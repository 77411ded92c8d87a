"""Functions of depth, and exact changes from one basis to another."""

from collections.abc import Mapping
from typing import Any

from continua._errors import ArgumentError

from ._basis import Basis, Point, Side, sample
from ._change import fit, gram, interpolation, least_squares, projection, quadrature
from ._fourier import Fourier
from ._piecewise import DiscontinuousLinear, PiecewiseConstant, PiecewiseLinear
from ._polynomial import Chebyshev, Constant, Legendre, Polynomial
from ._radial import GaussianRBF, MultiquadricRBF
from ._spline import BSpline

__all__ = [
    "FAMILIES",
    "BSpline",
    "Basis",
    "Chebyshev",
    "Constant",
    "DiscontinuousLinear",
    "Fourier",
    "GaussianRBF",
    "Legendre",
    "MultiquadricRBF",
    "PiecewiseConstant",
    "PiecewiseLinear",
    "Point",
    "Polynomial",
    "Side",
    "basis_from_config",
    "fit",
    "gram",
    "interpolation",
    "least_squares",
    "projection",
    "quadrature",
    "sample",
]

#: every family, by name
FAMILIES: dict[str, type[Basis]] = {
    family.__name__: family
    for family in (
        Constant,
        PiecewiseConstant,
        PiecewiseLinear,
        DiscontinuousLinear,
        BSpline,
        Polynomial,
        Legendre,
        Chebyshev,
        Fourier,
        GaussianRBF,
        MultiquadricRBF,
    )
}


def basis_from_config(config: Mapping[str, Any]) -> Basis:
    """The basis that `Basis.config` described."""
    arguments = dict(config)
    name = arguments.pop("type", None)
    if not isinstance(name, str) or name not in FAMILIES:
        raise ArgumentError(f"unknown basis {name!r}; known are {', '.join(FAMILIES)}")
    try:
        return FAMILIES[name](**arguments)
    except TypeError as error:
        raise ArgumentError(f"{name} cannot be made from {arguments}: {error}") from None
