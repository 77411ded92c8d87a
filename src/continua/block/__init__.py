"""The block: a basis, a field, a solver and a gradient put together."""

from ._block import ODEBlock
from ._plan import Plan, warn_unread

__all__ = ["ODEBlock", "Plan", "warn_unread"]
