"""Settings of the form name=value: from a text to a value of the right type."""

from __future__ import annotations

import ast
import types
import typing
from typing import Any, Literal

import continua as ct


def parsed(kind: Any, name: str, text: str) -> Any:
    """A text as a value of a dataclass field, or of a function's argument.

    Args:
        kind: the dataclass, or a function.
        name: of the field.
        text: as in `none`, `true`, `0.1`, `(2, 4)` or a plain word.
    """
    hint = typing.get_type_hints(kind)[name]
    options = (
        typing.get_args(hint)
        if typing.get_origin(hint) in (types.UnionType, typing.Union)
        else (hint,)
    )
    if text == "none" and type(None) in options:
        return None
    for option in options:
        found = _as(option, text)
        if found is not None:
            return found
    raise ct.ArgumentError(
        f"{name}={text!r} is not {' or '.join(_named(option) for option in options)}"
    )


def _named(option: Any) -> str:
    """A type, for an error message."""
    if option is type(None):
        return "none"
    if typing.get_origin(option) is Literal:
        return " or ".join(typing.get_args(option))
    if typing.get_origin(option) is tuple:
        return "a list such as (2, 4)"
    named = {int: "a whole number", float: "a number", bool: "true or false"}
    return named.get(option, str(getattr(option, "__name__", option)))


def _as(option: Any, text: str) -> Any:
    if typing.get_origin(option) is Literal:
        return text if text in typing.get_args(option) else None
    if option is str:
        return text
    if option is bool:
        return {"true": True, "false": False}.get(text.lower())
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return None
    if option is float and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if option is int and isinstance(value, int) and not isinstance(value, bool):
        return value
    if typing.get_origin(option) is tuple:
        return tuple(value) if isinstance(value, tuple | list) else (value,)
    return None
