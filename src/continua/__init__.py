"""Continuous-depth networks: weights are functions of depth."""

import gc
import warnings
from typing import TYPE_CHECKING

# Python's garbage collector would search the objects of torch again and again meanwhile, which
# takes longer than the imports below.
_collecting = gc.isenabled()
gc.disable()
try:
    from ._errors import (
        ArgumentError,
        ContinuaError,
        FileError,
        FrozenError,
        MissingPackageError,
        ModuleError,
        ShapeError,
        SolveError,
    )
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
        fit_coefficients,
        gram,
        interpolation,
        projection,
    )
    from .block import ODEBlock
    from .field import (
        DataControl,
        DepthConcat,
        Field,
        HigherOrder,
        Hypernetwork,
        InputLayer,
        SelectiveSecondOrder,
        Signal,
        Warped,
        ZeroAugment,
    )
    from .files import build, export, from_pretrained, load, push_to_hub, save
    from .gradient import Adjoint, Backprop, Checkpoint, Gradient, Reversible, odeint
    from .measure import (
        Comparison,
        compare,
        count_evaluations,
        functional_gradient,
        gradcheck,
        memory,
        sweep,
    )
    from .models import AdaptiveDepth, ContinuousFlow, Jumps, ablate, local_exponents
    from .solve import (
        RK4,
        RK38,
        AsynchronousLeapfrog,
        Bosh3,
        Dopri5,
        Dopri8,
        Euler,
        Heun,
        Midpoint,
        ReversibleHeun,
        Solution,
        Solver,
        Status,
        Tsit5,
    )
    from .transform import (
        Elastic,
        HealProgress,
        LayerRun,
        align,
        compress,
        convert,
        fit_hypernetwork,
        heal,
        project_gradient,
        recalibrate,
        refine,
        revert,
        smoothness,
        stacks,
        unroll,
    )
finally:
    if _collecting:
        gc.enable()

__version__ = "0.2.0.dev0"

__all__ = [
    # blocks and models
    "ODEBlock",
    "AdaptiveDepth",
    "ContinuousFlow",
    "Elastic",
    "Jumps",
    "odeint",
    # fields and input maps
    "Field",
    "DataControl",
    "DepthConcat",
    "HigherOrder",
    "Hypernetwork",
    "InputLayer",
    "SelectiveSecondOrder",
    "Signal",
    "Warped",
    "ZeroAugment",
    # bases
    "Basis",
    "BSpline",
    "Chebyshev",
    "Constant",
    "DiscontinuousLinear",
    "Fourier",
    "GaussianRBF",
    "Legendre",
    "MultiquadricRBF",
    "PiecewiseConstant",
    "PiecewiseLinear",
    "Polynomial",
    # solvers and what they return
    "Solver",
    "AsynchronousLeapfrog",
    "Bosh3",
    "Dopri5",
    "Dopri8",
    "Euler",
    "Heun",
    "Midpoint",
    "RK4",
    "RK38",
    "ReversibleHeun",
    "Tsit5",
    "Solution",
    "Status",
    # gradients
    "Gradient",
    "Adjoint",
    "Backprop",
    "Checkpoint",
    "Reversible",
    # verbs
    "align",
    "build",
    "compress",
    "convert",
    "fit_hypernetwork",
    "heal",
    "HealProgress",
    "project_gradient",
    "recalibrate",
    "refine",
    "revert",
    "smoothness",
    "stacks",
    "LayerRun",
    "unroll",
    # measures
    "Comparison",
    "ablate",
    "compare",
    "count_evaluations",
    "functional_gradient",
    "gradcheck",
    "local_exponents",
    "memory",
    "sweep",
    # files
    "export",
    "from_pretrained",
    "load",
    "push_to_hub",
    "save",
    # maths of bases
    "fit_coefficients",
    "gram",
    "interpolation",
    "projection",
    # errors
    "ContinuaError",
    "ArgumentError",
    "FileError",
    "FrozenError",
    "MissingPackageError",
    "ModuleError",
    "ShapeError",
    "SolveError",
]

#: old names and their new ones, for one version
_RENAMED = {"fit": "fit_coefficients", "Path": "Signal"}

if not TYPE_CHECKING:  # or a type checker would accept every name

    def __getattr__(name: str) -> object:
        if name not in _RENAMED:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        new = _RENAMED[name]
        warnings.warn(
            f"continua.{name} is now continua.{new}; the next version drops the old name",
            DeprecationWarning,
            stacklevel=2,
        )
        return globals()[new]
