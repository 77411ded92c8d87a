"""Figures from models and measurements; each function returns a matplotlib `Figure`.

A function `describe_x` says in a sentence, with the measured numbers, what the figure `x` shows.
matplotlib is part of the `recipes` extra: `pip install 'continua[recipes]'`.
"""

from ._attention import attention, describe_attention
from ._convergence import convergence, describe_convergence
from ._depth import state, weights
from ._latency import describe_latency, latency
from ._pareto import describe_pareto, pareto
from ._sensitivity import sensitivity
from ._sizes import Measurement, sizes
from ._style import Figure
from ._trial import Trial, front

__all__ = [
    "Figure",
    "Measurement",
    "Trial",
    "attention",
    "convergence",
    "describe_attention",
    "describe_convergence",
    "describe_latency",
    "describe_pareto",
    "front",
    "latency",
    "pareto",
    "sensitivity",
    "sizes",
    "state",
    "weights",
]
