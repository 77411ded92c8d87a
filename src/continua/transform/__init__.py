"""Verbs: each takes a model that contains ODE blocks and returns a new one, or a report."""

from ._blocks import blocks
from ._compare import Comparison, Size, TensorChange, compare, size
from ._compress import compress
from ._files import build, load, save
from ._refine import refine
from ._unroll import unroll

__all__ = [
    "Comparison",
    "Size",
    "TensorChange",
    "blocks",
    "build",
    "compare",
    "compress",
    "load",
    "refine",
    "save",
    "size",
    "unroll",
]
