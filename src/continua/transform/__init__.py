"""From a model that contains ODE blocks to another model."""

from ._blocks import RECIPE, blocks
from ._compress import compress
from ._convert import convert
from ._heal import HealProgress, heal
from ._hyper import fit_hypernetwork
from ._project import project_gradient
from ._recalibrate import recalibrate
from ._refine import refine
from ._unroll import unroll

__all__ = [
    "RECIPE",
    "HealProgress",
    "blocks",
    "compress",
    "convert",
    "fit_hypernetwork",
    "heal",
    "project_gradient",
    "recalibrate",
    "refine",
    "unroll",
]
