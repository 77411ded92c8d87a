"""Data: readers that need no other room."""

from ._digits import Split, digits

__all__ = ["Split", "digits"]
