"""From a model that contains ODE blocks to another model."""

from ._align import align
from ._batches import call, evaluating
from ._blocks import Recipe, blocks, blocks_if_any, coefficients, recipe_of, set_recipe, tie
from ._compress import compress
from ._convert import convert, convert_runs
from ._elastic import Elastic
from ._heal import HealProgress, heal
from ._hyper import fit_hypernetwork
from ._layers import LayerBlock
from ._project import project_gradient
from ._recalibrate import recalibrate
from ._refine import refine
from ._revert import revert
from ._runs import LayerRun, runs_at, stacks
from ._size import Size, size
from ._sizes import Choice, check_sizes, size_arguments
from ._smoothness import smoothness
from ._stack import converted
from ._unroll import unroll

__all__ = [
    "refine", "compress", "convert", "convert_runs", "revert", "stacks", "runs_at", "converted",
    "LayerRun", "LayerBlock", "fit_hypernetwork", "unroll", "project_gradient", "Elastic",
    "smoothness", "recalibrate", "align", "heal", "HealProgress", "call", "blocks",
    "blocks_if_any", "Choice", "check_sizes", "size_arguments", "Size", "size", "Recipe",
    "recipe_of", "set_recipe", "coefficients", "tie", "evaluating",
]  # fmt: skip
