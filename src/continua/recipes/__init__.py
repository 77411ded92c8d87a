"""Recipes: whole experiments, from the data to the figures.

They need the `recipes` extra: `pip install "continua-torch[recipes]"`.
"""

from ._commands import (
    EvaluateOptions,
    ExportOptions,
    RefineOptions,
    SweepOptions,
    run_evaluate,
    run_export,
    run_refine,
    run_sweep_command,
)
from ._compress import CompressOptions, run_compress
from ._demo import DemoOptions, DemoReport, check_demo, run_demo
from ._demo_table import Row
from ._gradcheck import GradcheckOptions, run_gradcheck
from ._grid import Grid
from ._heal import HealOptions, run_heal
from ._image_setup import ImageSetup
from ._measure import Sweep, measure
from ._memory import MemoryOptions, run_memory
from ._model import knows_its_run
from ._new import NewOptions, run_new
from ._output import write_figure
from ._own import OwnSetup, open_recipe
from ._parse import nearest, parse_basis, parse_solver
from ._point_setup import PointSetup
from ._recipe import Recipe, find
from ._report_page import Page, write_report
from ._reproduce import DataOptions, ReproduceOptions, run_data, run_reproduce
from ._run import Run
from ._setup import Scale, Setup
from ._study import Report, Study, describe_result
from ._sweep import run_sweep
from ._tagging_setup import TaggingSetup
from ._train import Setting, TrainOptions, run_train, settings_of, the_run
from ._video_setup import VideoSetup
from .dissecting import RECIPES as _DISSECTING
from .dissecting import STUDIES as _DISSECTING_STUDIES
from .nanode import RECIPES as _NANODE
from .nanode import STUDIES as _NANODE_STUDIES
from .stateful import RECIPES as _STATEFUL
from .stateful import STUDIES as _STATEFUL_STUDIES

#: every recipe, by name
RECIPES: dict[str, Recipe] = {
    recipe.name: recipe for recipe in (*_STATEFUL, *_NANODE, *_DISSECTING)
}

#: every study, by name
STUDIES: dict[str, Study] = {
    study.name: study for study in (*_STATEFUL_STUDIES, *_NANODE_STUDIES, *_DISSECTING_STUDIES)
}

__all__ = [
    "STUDIES",
    "DataOptions",
    "Report",
    "ReproduceOptions",
    "Study",
    "describe_result",
    "run_data",
    "run_reproduce",
    "CompressOptions",
    "EvaluateOptions",
    "ExportOptions",
    "Grid",
    "RefineOptions",
    "Sweep",
    "SweepOptions",
    "TrainOptions",
    "measure",
    "run_compress",
    "run_evaluate",
    "run_export",
    "run_refine",
    "run_sweep",
    "run_sweep_command",
    "run_train",
    "RECIPES",
    "DemoOptions",
    "DemoReport",
    "GradcheckOptions",
    "HealOptions",
    "ImageSetup",
    "MemoryOptions",
    "Page",
    "NewOptions",
    "OwnSetup",
    "PointSetup",
    "Recipe",
    "Row",
    "Run",
    "Scale",
    "Setup",
    "TaggingSetup",
    "VideoSetup",
    "check_demo",
    "find",
    "knows_its_run",
    "nearest",
    "open_recipe",
    "parse_basis",
    "parse_solver",
    "run_demo",
    "run_gradcheck",
    "run_heal",
    "run_memory",
    "run_new",
    "Setting",
    "settings_of",
    "the_run",
    "write_figure",
    "write_report",
]
