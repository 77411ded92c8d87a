"""The block: a basis, a field, a solver and a gradient put together."""

from ._block import ODEBlock
from ._layout import warn_unread
from ._plan import Plan

__all__ = ["ODEBlock", "Plan", "warn_unread"]
