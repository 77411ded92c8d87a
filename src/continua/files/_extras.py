"""Packages that only some functions need."""

from __future__ import annotations

import importlib
from typing import Any

from continua._errors import MissingPackageError


def import_extra(name: str, why: str, extra: str) -> Any:
    """A package of an extra.

    Args:
        name: of the package.
        why: it is needed, for the error.
        extra: that contains it.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise MissingPackageError(f"{why} ({error})", extra) from error
