"""Verbs: each takes a model that contains ODE blocks and returns a new one, or a report."""

from ._blocks import blocks
from ._compare import Comparison, Size, TensorChange, compare, size
from ._compress import compress
from ._files import build, load, save
from ._functional import FunctionalGradient, functional_gradient
from ._gradcheck import GradientError, GradientReport, gradcheck
from ._hyper import fit_hypernetwork
from ._refine import refine
from ._unroll import unroll

__all__ = [
    "Comparison",
    "FunctionalGradient",
    "GradientError",
    "GradientReport",
    "Size",
    "TensorChange",
    "blocks",
    "build",
    "compare",
    "compress",
    "fit_hypernetwork",
    "functional_gradient",
    "gradcheck",
    "load",
    "refine",
    "save",
    "size",
    "unroll",
]
