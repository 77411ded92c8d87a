"""A copy of a tree of modules that shares all but what refers to its parts."""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Collection, MutableMapping, Sequence
from functools import partial
from itertools import chain
from operator import is_
from types import FunctionType, MethodType
from typing import Any

from torch import Tensor, nn

from ._shards import is_fsdp_module, without_fsdp_hooks


class Tree:
    """A copy of a module and of all its parts, with registries of their own.

    An attribute that refers to a part, directly or in a container, is copied too, with the copy
    of that part in its place. Every other attribute is the same object.

    Args:
        module: the original.
        emptied: the registries and keys of tensors that the copy does not hold: None is there.

    Attributes:
        root: the copy of the module.
    """

    def __init__(self, module: nn.Module, emptied: Collection[tuple[dict[str, Any], str]]):
        self._copies = {part: object.__new__(type(part)) for part in module.modules()}
        self.root = self._copies[module]
        #: the dictionaries that were copied, and their copies
        self._pairs: list[tuple[dict[str, Any], dict[str, Any]]] = []
        self._known: dict[int, Any] = {}  # the copies of dictionaries and objects, by id
        for part, own in self._copies.items():
            # A copy, since another thread may add to what is iterated over.
            attributes = vars(part).copy()
            attributes.pop("_compiled_call_impl", None)  # compiled code calls the field itself
            if is_fsdp_module(part):  # its hooks run around the solve
                attributes = without_fsdp_hooks(attributes)
            for name in ("_parameters", "_buffers", "_modules"):
                registry = attributes.pop(name)
                vars(own)[name] = {key: self._map(v) for key, v in registry.copy().items()}
            vars(own).update({name: self._map(value) for name, value in attributes.items()})
            self._pairs += [(vars(part), vars(own)), (part._modules, own._modules)]
        self._originals = _Snapshot([original for original, _ in self._pairs])
        registries = [
            (vars(part)[name], vars(own)[name])
            for part, own in self._copies.items()
            for name in ("_parameters", "_buffers")
        ]
        self._registries = [original for original, _ in registries]
        self._keys = [*chain.from_iterable(self._registries)]
        self._tensors: list[tuple[dict[str, Any], str, Any]] = []
        skipped = {(id(registry), key) for registry, key in emptied}
        for original, own in registries:
            for key, value in own.items():
                if (id(original), key) in skipped:
                    own[key] = None
                else:
                    self._tensors.append((original, key, value))
        self._pairs += registries
        self._own = _Snapshot([own for _, own in self._pairs])

    def is_current(self) -> bool:
        """Whether the original is as it was, but for the tensors that the copy does not hold."""
        return (
            self._originals.is_current()
            and self._keys == [*chain.from_iterable(self._registries)]
            and all(registry[key] is value for registry, key, value in self._tensors)
        )

    def hand_over(self) -> bool:
        """Give the original what was set in the copy since; whether there was anything."""
        if self._own.is_current():
            return False
        originals = {own: part for part, own in self._copies.items()}
        for (original, own), before in zip(self._pairs, self._own.contents, strict=True):
            for name, value in own.items():
                if before.get(name) is not value:
                    is_part = isinstance(value, nn.Module)
                    original[name] = originals.get(value, value) if is_part else value
            for name in before.keys() - own.keys():
                original.pop(name, None)
        return True

    def _map(self, value: Any) -> Any:
        """An attribute, with the copy of every part that it refers to."""
        if isinstance(value, nn.Module):
            return self._copies.get(value, value)
        if id(value) in self._known:
            return self._known[id(value)]
        if isinstance(value, MutableMapping):
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
            refers = any(isinstance(p, nn.Module) and p in self._copies for p in _attributes(value))
            return self._map_object(value) if refers else value
        own = [self._map(part) for part in parts]
        return value if all(map(is_, own, parts)) else make(*own)

    def _map_dictionary(self, value: MutableMapping[Any, Any]) -> MutableMapping[Any, Any]:
        self._known[id(value)] = value  # it may contain itself
        content = {key: self._map(part) for key, part in value.items()}
        if all(map(is_, content.values(), value.values())):
            return value
        own = copy.copy(value)
        own.update(content)
        self._known[id(value)] = own
        if isinstance(value, dict) and isinstance(own, dict):
            self._pairs.append((value, own))
        return own

    def _map_object(self, value: Any) -> Any:
        own = copy.copy(value)
        self._known[id(value)] = own  # before its attributes, which may refer to it
        vars(own).update({name: self._map(part) for name, part in vars(value).items()})
        self._pairs.append((vars(value), vars(own)))
        return own


class _Snapshot:
    """What some dictionaries hold now, to tell later whether any of it was replaced."""

    def __init__(self, dictionaries: Sequence[dict[str, Any]]):
        self._dictionaries = dictionaries
        self.contents = [{**one} for one in dictionaries]
        self._values = [*chain.from_iterable(map(dict.values, dictionaries))]

    def is_current(self) -> bool:
        """Whether each holds the same objects."""
        values = chain.from_iterable(map(dict.values, self._dictionaries))
        count = sum(map(len, self._dictionaries))
        return count == len(self._values) and all(map(is_, values, self._values))


def _make_partial(function: Any, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    return partial(function, *args, **keywords)


def _make_container(kind: type, *parts: Any) -> Any:
    named = hasattr(kind, "_fields")
    return kind(*parts) if named else kind(parts)


def _attributes(value: Any) -> Collection[Any]:
    """Those of a plain object."""
    plain = hasattr(value, "__dict__") and not isinstance(value, Tensor | type | FunctionType)
    return vars(value).values() if plain else ()
