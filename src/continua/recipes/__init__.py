"""Recipes: whole experiments, from the data to the figures.

They need the `recipes` extra: `pip install 'continua[recipes]'`.
"""

from ._demo import DemoOptions, DemoReport, Row, check_demo, run_demo
from ._gradcheck import GradcheckOptions, run_gradcheck
from ._parse import nearest, parse_basis, parse_solver
from ._recipe import Recipe, find
from ._run import Run
from ._setup import ImageSetup, PointSetup, Scale, Setup, TaggingSetup
from .stateful import RECIPES as _STATEFUL

#: every recipe, by name
RECIPES: dict[str, Recipe] = {recipe.name: recipe for recipe in _STATEFUL}

__all__ = [
    "RECIPES",
    "DemoOptions",
    "DemoReport",
    "GradcheckOptions",
    "ImageSetup",
    "PointSetup",
    "Recipe",
    "Row",
    "Run",
    "Scale",
    "Setup",
    "TaggingSetup",
    "check_demo",
    "find",
    "nearest",
    "parse_basis",
    "parse_solver",
    "run_demo",
    "run_gradcheck",
]
