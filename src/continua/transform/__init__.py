"""From a model that contains ODE blocks to another model."""

from ._blocks import blocks, blocks_if_any, recipe_of, set_recipe
from ._compress import compress
from ._convert import convert
from ._hyper import fit_hypernetwork
from ._project import project_gradient
from ._refine import refine
from ._unroll import unroll

__all__ = [
    "refine", "compress", "convert", "fit_hypernetwork", "unroll", "project_gradient",
    "blocks", "blocks_if_any", "recipe_of", "set_recipe",
]  # fmt: skip
