"""From a model that contains ODE blocks to another model."""

from ._blocks import blocks
from ._compress import compress
from ._convert import convert
from ._elastic import Elastic
from ._hyper import fit_hypernetwork
from ._project import project_gradient
from ._recipe import recipe_of, set_recipe
from ._refine import refine
from ._sizes import Choice, check_sizes, size_arguments
from ._smoothness import smoothness
from ._unroll import unroll

__all__ = [
    "Choice",
    "Elastic",
    "blocks",
    "check_sizes",
    "compress",
    "convert",
    "fit_hypernetwork",
    "project_gradient",
    "recipe_of",
    "refine",
    "set_recipe",
    "size_arguments",
    "smoothness",
    "unroll",
]
