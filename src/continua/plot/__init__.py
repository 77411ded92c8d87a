"""Figures from models and measurements; each function returns a matplotlib `Figure`.

matplotlib is part of the `recipes` extra: `pip install 'continua[recipes]'`.
"""

from ._depth import state, weights
from ._sensitivity import sensitivity
from ._sizes import Measurement, sizes
from ._style import Figure

__all__ = ["Figure", "Measurement", "sensitivity", "sizes", "state", "weights"]
