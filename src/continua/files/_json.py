"""Arguments as JSON: numbers, strings, lists, bases, solvers and gradients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from continua._errors import ArgumentError
from continua._values import from_config
from continua.basis import Basis
from continua.gradient import Gradient
from continua.solve import Solver


def encode(value: Any, where: str) -> Any:
    """A value with bases, solvers and gradients in it, ready for JSON."""
    if isinstance(value, Basis):
        return {"$basis": value.config()}
    if isinstance(value, Solver):
        return {"$solver": value.config()}
    if isinstance(value, Gradient):
        return {"$gradient": value.config()}
    if isinstance(value, Mapping):
        if any(not isinstance(key, str) or key.startswith("$") for key in value):
            raise ArgumentError(f"the arguments of {where} have a key that JSON cannot hold")
        return {key: encode(item, where) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [encode(item, where) for item in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise ArgumentError(
        f"the arguments of {where} contain {value!r}, which JSON cannot hold; "
        "use numbers, strings, lists, bases, solvers and gradients"
    )


def decode(value: Any) -> Any:
    """The inverse of `encode`."""
    if isinstance(value, Mapping):
        if "$basis" in value:
            return from_config(Basis, value["$basis"])
        if "$solver" in value:
            return from_config(Solver, value["$solver"])
        if "$gradient" in value:
            return from_config(Gradient, value["$gradient"])
        return {key: decode(item) for key, item in value.items()}
    if isinstance(value, list):
        return [decode(item) for item in value]
    return value
