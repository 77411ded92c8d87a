"""A copy of a tree of modules that shares all but what refers to its parts."""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Collection
from functools import partial
from operator import is_
from types import FunctionType, MethodType
from typing import Any

from torch import Tensor, nn

from ._shards import is_fsdp_module, without_fsdp_hooks

Pairs = list[tuple[dict[str, Any], dict[str, Any]]]


class Tree:
    """A copy of a module and of all its parts, with registries of their own.

    An attribute that refers to a part, directly or in a container, is copied too, with the copy
    of that part in its place. Every other attribute is the same object.

    Attributes:
        copies: the copy of each part.
        tensors: the registries of parameters and buffers, each with its copy.
        others: all other dictionaries that were copied, each with its copy.
    """

    def __init__(self, module: nn.Module):
        self.copies: dict[nn.Module, nn.Module] = {
            part: object.__new__(type(part)) for part in module.modules()
        }
        self.tensors: Pairs = []
        self.others: Pairs = []
        self._known: dict[int, Any] = {}  # the copies of dictionaries and objects, by id
        for part, own in self.copies.items():
            # A copy, since another thread may add to what is iterated over.
            attributes = vars(part).copy()
            attributes.pop("_compiled_call_impl", None)  # compiled code calls the field itself
            if is_fsdp_module(part):  # its hooks run around the solve
                attributes = without_fsdp_hooks(attributes)
            for name in ("_parameters", "_buffers", "_modules"):
                source = attributes.pop(name)
                vars(own)[name] = {key: self._map(one) for key, one in source.copy().items()}
                pairs = self.others if name == "_modules" else self.tensors
                pairs.append((source, vars(own)[name]))
            vars(own).update({name: self._map(value) for name, value in attributes.items()})
            self.others.append((vars(part), vars(own)))

    def _map(self, value: Any) -> Any:
        """An attribute, with the copy of every part that it refers to."""
        if isinstance(value, nn.Module):
            return self.copies.get(value, value)
        if id(value) in self._known:
            return self._known[id(value)]
        if isinstance(value, dict):
            return self._map_dictionary(value)
        parts: list[Any]
        make: Callable[..., Any]
        if isinstance(value, MethodType):
            parts, make = [value.__self__], partial(MethodType, value.__func__)
        elif isinstance(value, partial):
            parts, make = [value.func, value.args, value.keywords], _make_partial
        elif isinstance(value, list | tuple | set | frozenset | deque):
            parts, make = [*value], partial(_make_container, type(value))
        else:
            refers = any(isinstance(p, nn.Module) and p in self.copies for p in _attributes(value))
            return self._map_object(value) if refers else value
        own = [self._map(part) for part in parts]
        return value if all(map(is_, own, parts)) else make(*own)

    def _map_dictionary(self, value: dict[Any, Any]) -> dict[Any, Any]:
        self._known[id(value)] = value  # it may contain itself
        content = {key: self._map(part) for key, part in value.items()}
        if all(map(is_, content.values(), value.values())):
            return value
        own = copy.copy(value)
        own.update(content)
        self._known[id(value)] = own
        self.others.append((value, own))
        return own

    def _map_object(self, value: Any) -> Any:
        own = copy.copy(value)
        self._known[id(value)] = own  # before its attributes, which may refer to it
        vars(own).update({name: self._map(part) for name, part in vars(value).items()})
        self.others.append((vars(value), vars(own)))
        return own


def _make_partial(function: Any, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    return partial(function, *args, **keywords)


def _make_container(kind: type, *parts: Any) -> Any:
    named = hasattr(kind, "_fields")
    return kind(*parts) if named else kind(parts)


def _attributes(value: Any) -> Collection[Any]:
    """Those of a plain object."""
    plain = hasattr(value, "__dict__") and not isinstance(value, Tensor | type | FunctionType)
    return vars(value).values() if plain else ()
