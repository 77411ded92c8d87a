"""Continuous-depth networks: weights are functions of depth."""

from ._errors import ArgumentError, ContinuaError, FileError, ModuleError, ShapeError
from .basis import (
    Basis,
    BSpline,
    Chebyshev,
    Constant,
    DiscontinuousLinear,
    Fourier,
    GaussianRBF,
    Legendre,
    MultiquadricRBF,
    PiecewiseConstant,
    PiecewiseLinear,
    Polynomial,
    fit,
    gram,
    interpolation,
    projection,
)
from .block import ODEBlock
from .field import Field
from .solve import RK4, RK38, Euler, Heun, Midpoint, Solution, Solver
from .transform import (
    Comparison,
    build,
    compare,
    compress,
    load,
    refine,
    save,
    unroll,
)

__version__ = "0.1.0"

__all__ = [
    "RK4",
    "RK38",
    "ArgumentError",
    "BSpline",
    "Basis",
    "Chebyshev",
    "Comparison",
    "Constant",
    "ContinuaError",
    "DiscontinuousLinear",
    "Euler",
    "Field",
    "FileError",
    "Fourier",
    "GaussianRBF",
    "Heun",
    "Legendre",
    "Midpoint",
    "ModuleError",
    "MultiquadricRBF",
    "ODEBlock",
    "PiecewiseConstant",
    "PiecewiseLinear",
    "Polynomial",
    "ShapeError",
    "Solution",
    "Solver",
    "build",
    "compare",
    "compress",
    "fit",
    "gram",
    "interpolation",
    "load",
    "projection",
    "refine",
    "save",
    "unroll",
]
