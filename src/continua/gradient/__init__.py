"""Gradients: how a solve is differentiated; and `odeint`, a solve of any field."""

from continua._values import known

from ._adjoint import Adjoint
from ._cache import cache_folder, cached_files, clear_cache
from ._checkpoint import Checkpoint
from ._checks import Ends, SaveAt, checked_solver, checked_span
from ._compiled import compiled_first
from ._dependencies import dependencies, detach, reachable, requiring_grad, tensors_in
from ._gradient import CHANGED, Backprop, Gradient, checked_gradient
from ._odeint import integrate, odeint, solve
from ._problem import CallableDynamics, Problem, RunningCost
from ._programs import Programs, checked_backend, exchanged, known_shared
from ._reversible import Reversible
from ._trace import Backend, Program, Uncompilable

__all__ = [
    # gradients
    "Backprop", "Checkpoint", "Adjoint", "Reversible", "Gradient", "GRADIENTS",
    # solves
    "odeint", "solve", "integrate", "Problem", "RunningCost", "Ends", "SaveAt",
    # for other dynamics
    "CHANGED", "CallableDynamics", "checked_gradient", "checked_solver", "checked_span", "detach",
    "dependencies", "tensors_in", "requiring_grad",
    # compiled steps
    "Program", "Programs", "Backend", "Uncompilable", "checked_backend", "compiled_first",
    "exchanged", "known_shared", "reachable", "cache_folder", "cached_files", "clear_cache",
]  # fmt: skip

#: every gradient, by name
GRADIENTS = known(Gradient)
