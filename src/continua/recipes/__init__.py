"""Recipes: whole experiments, from the data to the figures.

They need the `recipes` extra: `pip install 'continua[recipes]'`.
"""

from ._demo import DemoOptions, DemoReport, Progress, Row, check_demo, run_demo
from ._gradcheck import GradcheckOptions, run_gradcheck

__all__ = [
    "DemoOptions",
    "DemoReport",
    "GradcheckOptions",
    "Progress",
    "Row",
    "check_demo",
    "run_demo",
    "run_gradcheck",
]
