"""Gradients: how a solve is differentiated."""

from ._adjoint import Adjoint
from ._backprop import Backprop
from ._checkpoint import Checkpoint
from ._gradient import Gradient
from ._reversible import Reversible

__all__ = ["GRADIENTS", "Adjoint", "Backprop", "Checkpoint", "Gradient", "Reversible"]

#: every gradient, by name
GRADIENTS: dict[str, type[Gradient]] = {
    gradient.__name__: gradient for gradient in (Backprop, Checkpoint, Adjoint, Reversible)
}
