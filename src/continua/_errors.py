"""The errors a user meets: each message names the offending value and the remedy."""

__all__ = [
    "ArgumentError",
    "ContinuaError",
    "FileError",
    "FrozenError",
    "ModuleError",
    "ShapeError",
    "SolveError",
]


class ContinuaError(Exception):
    """The root of every error that continua raises on purpose."""


class ArgumentError(ContinuaError, ValueError):
    """A number, a name or a tensor that cannot work."""


class ShapeError(ArgumentError):
    """A tensor of the wrong shape, dtype or device."""


class FrozenError(ContinuaError, AttributeError):
    """An attempt to change a value in place."""


class ModuleError(ContinuaError, TypeError):
    """A module that cannot become a function of depth."""


class FileError(ContinuaError):
    """A file that is missing, damaged, or written by a newer format."""


class SolveError(ContinuaError, ArithmeticError):
    """A solve that stopped before the end of its span."""
