"""From a model that contains ODE blocks to a report about it."""

from continua.transform import Size, size

from ._compare import Comparison, TensorChange, compare
from ._count import Evaluations, count_evaluations
from ._functional import FunctionalGradient, functional_gradient
from ._gradcheck import GradientError, GradientReport, gradcheck
from ._memory import MemoryReport, MemoryUse, memory, readable_bytes
from ._sweep import Front, Variant, sweep

__all__ = [
    "compare", "count_evaluations", "functional_gradient", "gradcheck", "memory", "size", "sweep",
    "Comparison", "Evaluations", "Front", "FunctionalGradient", "GradientError", "GradientReport",
    "MemoryReport", "MemoryUse", "Size", "TensorChange", "Variant", "readable_bytes",
]  # fmt: skip
