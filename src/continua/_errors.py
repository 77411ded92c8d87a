"""The errors a user meets: each message names the offending value and the remedy."""

__all__ = [
    "ArgumentError",
    "ContinuaError",
    "FileError",
    "FrozenError",
    "MissingPackageError",
    "ModuleError",
    "ShapeError",
    "SolveError",
    "first_line",
]


def first_line(error: BaseException) -> str:
    """The first line of the message of an error; its type if it has no message."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


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


class MissingPackageError(ContinuaError, ImportError):
    """A package of an extra that is not installed.

    Args:
        why: what needs which package.
        extra: that contains it.
        otherwise: what to do without it.
        package: to install where no extra contains it.
    """

    def __init__(
        self, why: str, extra: str = "recipes", otherwise: str = "", *, package: str | None = None
    ):
        what = package or f'"continua-torch[{extra}]"'
        remedy = f"install with `pip install {what}`"
        super().__init__(f"{why}; {remedy}{otherwise and f', or {otherwise}'}")


class SolveError(ContinuaError, ArithmeticError):
    """A solve that stopped before the end of its span."""
