"""A factory and its arguments as JSON: how to make a model again."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import typing
from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

from continua._errors import ArgumentError
from continua._values import Value, from_config
from continua.basis import Basis
from continua.gradient import Gradient
from continua.solve import Solver

Factory = Callable[..., nn.Module]
KINDS: dict[str, type[Value]] = {"$basis": Basis, "$solver": Solver, "$gradient": Gradient}


def describe(factory: Factory, arguments: dict[str, Any]) -> dict[str, Any]:
    """The name of a factory and its arguments, ready for JSON."""
    name = f"{getattr(factory, '__module__', '?')}:{getattr(factory, '__qualname__', '?')}"
    if name.startswith("__main__:") or "<" in name:
        raise ArgumentError(
            f"{name} cannot be imported from elsewhere, so a file could not name it; "
            "move it to the top level of a module"
        )
    if import_factory(name) is not factory:
        raise ArgumentError(f"{name} is now another object than the factory given")
    signature = inspect.signature(factory)
    try:
        signature.bind(**arguments)
    except TypeError as error:
        raise ArgumentError(f"{name} cannot be called so: {error}") from None
    return {"name": name, "arguments": _defaults(signature) | encode(arguments, name)}


def _defaults(signature: inspect.Signature) -> dict[str, Any]:
    """The defaults that JSON can hold, so that a file means the same when a default changes."""
    encoded = {}
    for name, p in signature.parameters.items():
        if p.kind is not p.POSITIONAL_ONLY and p.default is not p.empty:
            with contextlib.suppress(ArgumentError):
                encoded[name] = encode(p.default, name)
    return encoded


def import_factory(name: str) -> Factory:
    """The factory of this name, if it makes an `nn.Module`."""
    module_name, _, qualified = str(name).partition(":")
    try:
        found: Any = importlib.import_module(module_name)
        for part in qualified.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError) as error:
        raise ArgumentError(
            f"the factory {name!r} cannot be imported: {error}; Python looks for it in the folders "
            "of PYTHONPATH"
        ) from error
    # A file must not be able to call just any function of the installed packages.
    made = found if inspect.isclass(found) else None
    if made is None:
        with contextlib.suppress(Exception):
            made = typing.get_type_hints(found).get("return")
    if not (inspect.isclass(made) and issubclass(made, nn.Module)):
        raise ArgumentError(
            f"the factory {name!r} is neither an nn.Module class nor a function annotated to "
            "return one"
        )
    return found  # type: ignore[no-any-return]


def encode(value: Any, where: str) -> Any:
    """An argument as a value that JSON can hold."""
    for mark, kind in KINDS.items():
        if isinstance(value, kind):
            return {mark: value.config()}
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
        for mark, kind in KINDS.items():
            if mark in value:
                return from_config(kind, value[mark])
        return {key: decode(item) for key, item in value.items()}
    if isinstance(value, list):
        return [decode(item) for item in value]
    return value
