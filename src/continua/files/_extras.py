"""Packages that only some functions need."""

from __future__ import annotations

import importlib
from typing import Any

from continua._errors import MissingPackageError


def import_extra(name: str, why: str, extra: str) -> Any:
    """Import a package of an extra; an error says why it is needed."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise MissingPackageError(f"{why} ({error})", extra) from error
