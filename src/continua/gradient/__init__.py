"""Gradients: how a solve is differentiated."""

from collections.abc import Mapping
from typing import Any

from continua._errors import ArgumentError
from continua.solve import solver_from_config

from ._adjoint import Adjoint
from ._backprop import Backprop
from ._checkpoint import Checkpoint
from ._gradient import Gradient
from ._reversible import Reversible

__all__ = [
    "GRADIENTS",
    "Adjoint",
    "Backprop",
    "Checkpoint",
    "Gradient",
    "Reversible",
    "gradient_from_config",
]

#: every gradient, by name
GRADIENTS: dict[str, type[Gradient]] = {
    gradient.__name__: gradient for gradient in (Backprop, Checkpoint, Adjoint, Reversible)
}


def gradient_from_config(config: Mapping[str, Any]) -> Gradient:
    """The gradient that `Gradient.config` described."""
    arguments = dict(config)
    name = arguments.pop("type", None)
    if not isinstance(name, str) or name not in GRADIENTS:
        raise ArgumentError(f"unknown gradient {name!r}; known are {', '.join(GRADIENTS)}")
    if isinstance(arguments.get("solver"), Mapping):
        arguments["solver"] = solver_from_config(arguments["solver"])
    try:
        return GRADIENTS[name](**arguments)
    except TypeError as error:
        raise ArgumentError(f"{name} cannot be made from {arguments}: {error}") from None
