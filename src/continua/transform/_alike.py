"""Whether two modules of one class are the same but for their tensors and parts."""

from __future__ import annotations

import functools
import inspect
import math
from abc import ABCMeta
from collections.abc import Iterable, Iterator, Mapping
from types import FunctionType, MethodType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

#: what every module has; tensors and parts are compared elsewhere
OWN = vars(nn.Module()).keys()
ELSEWHERE = {"_parameters", "_buffers", "_modules"}


def different(
    one: nn.Module, other: nn.Module, counterparts: Iterable[tuple[object, object]]
) -> Iterator[tuple[str, Any, Any]]:
    """The attributes in which two modules differ, hooks and mode included, with both values.

    Counterparts are parts and tensors that stand for each other; they are compared elsewhere.
    """
    mine, theirs = _attributes(one), _attributes(other)
    known = frozenset((id(a), id(b)) for a, b in ((one, other), *counterparts))
    for name in [*mine, *(theirs.keys() - mine.keys())]:
        here, there = mine.get(name), theirs.get(name)
        if name not in mine or name not in theirs or not _alike(here, there, known):
            yield name, here, there


def _attributes(module: nn.Module) -> dict[str, Any]:
    found = {name: value for name, value in vars(module).items() if name not in ELSEWHERE}
    for name in OWN & found.keys():
        if isinstance(found[name], dict):  # hooks, under numbers that mean nothing
            found[name] = list(found[name].values())
    return found


def _alike(one: Any, other: Any, known: frozenset[tuple[int, int]]) -> bool:
    """Whether two values mean the same, given pairs that do; what cannot be compared does not."""
    if one is other or (id(one), id(other)) in known:
        return True
    if type(one) is not type(other):
        return False
    both = functools.partial(_alike, known=known | {(id(one), id(other))})
    match one:
        case Tensor():
            same = one.shape == other.shape and one.dtype == other.dtype
            return same and not one.is_meta and torch.equal(one, other)
        case float():
            return one == other or (math.isnan(one) and math.isnan(other))
        case Mapping():
            return one.keys() == other.keys() and all(both(one[k], other[k]) for k in one)
        case list() | tuple():
            return len(one) == len(other) and all(map(both, one, other))
        case np.ndarray():
            return np.array_equal(one, other)
        case functools.partial() | MethodType() | FunctionType():
            return both(_ingredients(one), _ingredients(other))
        case nn.Module():
            return False  # one that is not registered
    kind: Any = type(one)
    if kind.__eq__ is not object.__eq__:
        try:
            return bool(one == other)
        except Exception:
            return False
    python = type(kind) in (type, ABCMeta)  # others may keep more than their attributes
    return python and hasattr(one, "__dict__") and both(vars(one), vars(other))


def _ingredients(function: Any) -> list[Any]:
    """The code of a function and what it brings along."""
    if isinstance(function, functools.partial):
        return [function.func, function.args, function.keywords]
    if isinstance(function, MethodType):
        return [function.__func__, function.__self__]
    closed = inspect.getclosurevars(function).nonlocals
    return [function.__code__, closed, function.__defaults__, function.__kwdefaults__]
