"""Gradients: how a solve is differentiated; and `odeint`, a solve of any field."""

from continua._values import known

from ._adjoint import Adjoint
from ._backprop import Backprop
from ._checkpoint import Checkpoint
from ._checks import SaveAt, checked_gradient, checked_solver, checked_span
from ._dependencies import dependencies
from ._finite import has_values, tracing
from ._function import CallableDynamics, cut, wanting
from ._gradient import Gradient, autocast_on
from ._odeint import followed, odeint, solve
from ._problem import Problem, RunningCost, real
from ._reversible import Reversible

__all__ = [
    # gradients
    "Backprop",
    "Checkpoint",
    "Adjoint",
    "Reversible",
    "Gradient",
    "GRADIENTS",
    # solves
    "odeint",
    "solve",
    "followed",
    "Problem",
    "RunningCost",
    "SaveAt",
    # for other dynamics
    "CallableDynamics",
    "autocast_on",
    "checked_gradient",
    "checked_solver",
    "checked_span",
    "cut",
    "dependencies",
    "has_values",
    "real",
    "tracing",
    "wanting",
]

#: every gradient, by name
GRADIENTS = known(Gradient)
