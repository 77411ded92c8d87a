"""The block: a basis, a field, a solver and a gradient put together."""

from ._block import ODEBlock

__all__ = ["ODEBlock"]
