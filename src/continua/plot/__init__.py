"""Figures from models and measurements; each function returns a matplotlib `Figure`.

`animate` and `play` write a file, a GIF.

A function `describe_x` says in a sentence, with the measured numbers, what the figure `x` shows.
matplotlib is part of the `recipes` extra: `pip install "continua-torch[recipes]"`.
"""

from ._ablation import ablation
from ._animation import animate
from ._attention import attention, describe_attention
from ._convergence import convergence, describe_convergence
from ._course import course
from ._decision import decision
from ._density import densities, density
from ._depth import state, weights
from ._families import families
from ._flow import depth_flow, phase_flow
from ._functions import functions_of_depth
from ._history import evaluations, losses
from ._latency import describe_latency, latency
from ._memory import memory, memory_growth
from ._orders import orders
from ._panels import loss_panels
from ._pareto import describe_pareto, pareto
from ._ratios import Ratio, ratios
from ._sensitivity import sensitivity
from ._sizes import Measurement, sizes
from ._style import Figure
from ._sweep import sweep
from ._trial import Trial, front
from ._video import play, strips

__all__ = [
    "Figure",
    "Measurement",
    "Ratio",
    "Trial",
    "ablation",
    "animate",
    "attention",
    "convergence",
    "course",
    "decision",
    "densities",
    "density",
    "depth_flow",
    "describe_attention",
    "describe_convergence",
    "describe_latency",
    "describe_pareto",
    "evaluations",
    "families",
    "front",
    "functions_of_depth",
    "latency",
    "loss_panels",
    "losses",
    "memory",
    "memory_growth",
    "orders",
    "pareto",
    "phase_flow",
    "play",
    "ratios",
    "sensitivity",
    "sizes",
    "state",
    "strips",
    "sweep",
    "weights",
]
