"""From a model that contains ODE blocks to another model."""

from ._blocks import RECIPE, blocks
from ._compress import compress
from ._convert import convert
from ._elastic import Elastic
from ._hyper import fit_hypernetwork
from ._project import project_gradient
from ._refine import refine
from ._sizes import Choice, check_sizes, size_arguments
from ._smoothness import smoothness
from ._unroll import unroll

__all__ = [
    "RECIPE",
    "Choice",
    "Elastic",
    "blocks",
    "check_sizes",
    "compress",
    "convert",
    "fit_hypernetwork",
    "project_gradient",
    "refine",
    "size_arguments",
    "smoothness",
    "unroll",
]
