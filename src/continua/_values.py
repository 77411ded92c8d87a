"""What bases, solvers and gradients have in common: they are values."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from numbers import Integral, Real
from typing import Any, ClassVar, NoReturn, TypeVar, dataclass_transform

from ._errors import ArgumentError, FrozenError

__all__ = ["Value", "from_config", "known", "value", "whole_number"]


class Value:
    """A frozen dataclass that can be compared, hashed, printed and written as JSON.

    A subclass of `Value` that is abstract is a kind, such as `Basis`. `value` decorates its
    subclasses: the concrete ones, and those that add arguments.
    """

    #: what to do instead of a change in place
    remedy: ClassVar[str] = "make another one"
    #: how many arguments `repr` writes without their names
    positional: ClassVar[int] = 0

    def __post_init__(self) -> None:
        for f in fields(self):  # type: ignore[arg-type]
            object.__setattr__(self, f.name, _plain(getattr(self, f.name)))

    def arguments(self) -> dict[str, Any]:
        """The constructor's arguments; a keyword-only one only if it is not the default."""
        given = {f: getattr(self, f.name) for f in fields(self)}  # type: ignore[arg-type]
        return {f.name: v for f, v in given.items() if not f.kw_only or v != f.default}

    def config(self) -> dict[str, Any]:
        """The class and its arguments, ready for JSON; `from_config` is the inverse."""
        arguments = {
            name: argument.config() if isinstance(argument, Value) else argument
            for name, argument in self.arguments().items()
        }
        return {"type": type(self).__name__} | arguments

    def __repr__(self) -> str:
        written = [
            f"{argument!r}" if i < self.positional else f"{name}={argument!r}"
            for i, (name, argument) in enumerate(self.arguments().items())
        ]
        return f"{type(self).__name__}({', '.join(written)})"

    def __setattr__(self, name: str, new: object) -> NoReturn:
        raise FrozenError(f"{self!r} is a value and cannot be changed; {self.remedy}")

    def __delattr__(self, name: str) -> NoReturn:
        raise FrozenError(f"{self!r} is a value and cannot be changed; {self.remedy}")


V = TypeVar("V", bound=Value)

#: every concrete class, by name
_KNOWN: dict[str, type[Value]] = {}


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def value(cls: type[V]) -> type[V]:
    """Make a class a frozen dataclass and, unless it is abstract, known by its name."""
    dataclass(frozen=True, repr=False)(cls)
    # Those of `Value` name a remedy.
    del cls.__setattr__, cls.__delattr__
    cls.__doc__ = _with_arguments(cls)
    if inspect.isabstract(cls):
        return cls
    name = cls.__name__
    there = _KNOWN.setdefault(name, cls)
    if (there.__module__, there.__qualname__) != (cls.__module__, cls.__qualname__):
        raise ArgumentError(f"{there.__module__} has a {name} already: choose another name")
    _KNOWN[name] = cls  # a module may be loaded again
    return cls


def _with_arguments(cls: type) -> str:
    """The docstring of a class, with the arguments that a base documents if it has none."""
    own, *bases = (inspect.cleandoc(vars(c).get("__doc__") or "") for c in cls.__mro__)
    described = next((text for text in bases if "\nArgs:\n" in text), "")
    if "\nArgs:\n" in own or not described:
        return own
    arguments = "Args:\n" + described.partition("\nArgs:\n")[2].partition("\n\n")[0]
    head, example, rest = own.partition("\n\nExample:\n")
    return f"{head}\n\n{arguments}{example}{rest}"


def known(kind: type[V]) -> dict[str, type[V]]:
    """Every concrete class of a kind, by name."""
    return {name: cls for name, cls in _KNOWN.items() if issubclass(cls, kind)}


def from_config(kind: type[V], config: Mapping[str, Any]) -> V:
    """The value that `Value.config` described.

    Args:
        kind: what it must be, such as `Basis`.
        config: the name of a class under `"type"`, and its arguments.

    Example:
        >>> from continua import Basis, Fourier
        >>> Fourier(2).config()
        {'type': 'Fourier', 'order': 2, 'period': 1.0}
        >>> from_config(Basis, Fourier(2).config())
        Fourier(2, period=1.0)
    """
    what, choices = kind.__name__.lower(), known(kind)
    if not isinstance(config, Mapping):
        raise ArgumentError(f"the config of a {what} is a mapping, not {config!r}")
    arguments = dict(config)
    name = arguments.pop("type", None)
    if not isinstance(name, str) or name not in choices:
        raise ArgumentError(f"unknown {what} {name!r}; known are {', '.join(choices)}")
    for key, argument in arguments.items():
        if isinstance(argument, Mapping) and "type" in argument:
            arguments[key] = from_config(Value, argument)
    try:
        return choices[name](**arguments)
    except TypeError as error:
        raise ArgumentError(f"{name} cannot be made from {arguments}: {error}") from None


def _plain(argument: Any) -> Any:
    """A number of NumPy, say, as one of Python; anything else as it is."""
    if isinstance(argument, bool) or not isinstance(argument, Real):
        return argument
    return int(argument) if isinstance(argument, Integral) else float(argument)


def whole_number(name: str, number: Any, least: int = 1, most: int | None = None) -> int:
    """The number, if it is a whole one between the two bounds."""
    whole = isinstance(number, Integral) and not isinstance(number, bool)
    if not whole or int(number) < least:
        raise ArgumentError(f"{name} is a whole number of at least {least}, not {number!r}")
    if most is not None and int(number) > most:
        raise ArgumentError(f"{name} is at most {most:,}, not {number:,}")
    return int(number)
