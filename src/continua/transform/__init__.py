"""Verbs: each takes a model that contains ODE blocks and returns a new one, or a report."""

from ._blocks import RECIPE, blocks
from ._compare import Comparison, Size, TensorChange, compare, size
from ._compress import compress
from ._convert import convert
from ._count import Evaluations, count_evaluations
from ._export import Exported, export
from ._files import build, load, save, write_files
from ._functional import FunctionalGradient, functional_gradient
from ._gradcheck import GradientError, GradientReport, gradcheck
from ._hyper import fit_hypernetwork
from ._memory import MemoryReport, MemoryUse, memory, readable_bytes
from ._project import project_gradient
from ._refine import refine
from ._unroll import unroll

__all__ = [
    "RECIPE",
    "Comparison",
    "Evaluations",
    "Exported",
    "FunctionalGradient",
    "GradientError",
    "GradientReport",
    "MemoryReport",
    "MemoryUse",
    "Size",
    "TensorChange",
    "blocks",
    "build",
    "compare",
    "compress",
    "convert",
    "count_evaluations",
    "export",
    "fit_hypernetwork",
    "functional_gradient",
    "gradcheck",
    "load",
    "memory",
    "project_gradient",
    "readable_bytes",
    "refine",
    "save",
    "size",
    "unroll",
    "write_files",
]
