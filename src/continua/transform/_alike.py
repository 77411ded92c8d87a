"""Whether two layers are the same but for the values of their tensors."""

from __future__ import annotations

import functools
import inspect
import math
from abc import ABCMeta
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from types import FunctionType, MethodType, NoneType
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import type_before_parametrizations
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from continua._errors import ModuleError
from continua.field import in_shards, tensor_names

Tensors = dict[str, Tensor]
#: what every module has, and what of it is not compared as an attribute
OWN = vars(nn.Module()).keys()
ELSEWHERE = {"_parameters", "_buffers", "_modules"}


class Difference(NamedTuple):
    """An attribute in which two layers differ, and both values."""

    path: str
    one: Any
    other: Any

    def sentence(self, both: str) -> str:
        """Why the layers are not one block."""
        texts = (
            text if len(text) <= 60 else f"{text[:57]}..."
            for text in map(repr, (self.one, self.other))
        )
        remedy = f"if it does not matter, convert(..., ignore=[{self.path!r}])"
        if self.path.endswith("_hooks"):
            remedy = "remove the hooks, and convert then"
        return (
            f"{both} differ in {self.path!r}, {' and '.join(texts)}; a block has one for all "
            f"depths: {remedy}"
        )


def compare(
    both: str, one: nn.Module, other: nn.Module, ignore: Sequence[str] = ()
) -> list[Difference]:
    """The attributes in which two layers differ; other differences than of values are refused.

    Args:
        both: what to call the layers.
        one: a layer.
        other: another.
        ignore: patterns of attributes that are not compared.
    """
    parts, others = dict(one.named_modules()), dict(other.named_modules())
    for name, part in (*parts.items(), *others.items()):
        if _is_quantized(part):
            raise ModuleError(
                f"{name!r} in {both} is quantised, so that its weights cannot vary with depth; "
                "convert the model first, and quantise what revert gives"
            )
    rates: dict[str, Difference] = {}
    for name in [*parts, *(name for name in others if name not in parts)]:
        # A parametrized module has a class of its own.
        here, there = (
            type_before_parametrizations(modules[name]) if name in modules else NoneType
            for modules in (parts, others)
        )
        if here is not there:
            if rate := _dropout(name, parts.get(name), others.get(name)):
                rates[name] = rate
                continue
            where = f"at {name!r}" if name else "in kind"
            kinds = " and ".join("nothing" if k is NoneType else k.__name__ for k in (here, there))
            if here.__name__ == there.__name__:
                kinds += ", two classes of one name"
            raise ModuleError(
                f"{both} differ {where}, {kinds}; a block has one field for all depths"
            )
    if tensor_names(one)[1] != tensor_names(other)[1]:
        raise ModuleError(f"{both} differ in which of their tensors are the same; untie them")
    counterparts = [(part, others[name]) for name, part in parts.items()]
    counterparts += _paired_tensors(both, all_tensors(one), all_tensors(other))
    found = [*rates.values()] + [
        Difference(f"{name}.{key}" if name else key, a, b)
        for name, part in parts.items()
        if name not in rates
        for key, a, b in _different(part, others[name], counterparts)
    ]
    return [d for d in found if not any(fnmatchcase(d.path, pattern) for pattern in ignore)]


def _is_quantized(part: nn.Module) -> bool:
    """Whether a module has packed weights, or weights of a byte each or less."""
    own = [p for p in part._parameters.values() if p is not None]
    packed = any(not in_shards(p) and is_traceable_wrapper_subclass(p) for p in own)
    small = any(p.dtype.itemsize == 1 for p in own)
    return packed or small or ".quantized." in type(part).__module__


def _dropout(name: str, one: Any, other: Any) -> Difference | None:
    """The rates of a dropout and of an identity in its place, which is one at rate 0."""
    for identity, dropout in ((one, other), (other, one)):
        if type(identity) is nn.Identity and "drop" in type(dropout).__name__.lower():
            for key in ("p", "drop_prob"):
                if type(rate := vars(dropout).get(key)) in (int, float):
                    values = (0.0, rate) if identity is one else (rate, 0.0)
                    return Difference(f"{name}.{key}", *values)
    return None


def _paired_tensors(both: str, mine: Tensors, theirs: Tensors) -> Iterator[tuple[Any, Any]]:
    for name in [*mine, *(name for name in theirs if name not in mine)]:
        if name not in mine or name not in theirs:
            raise ModuleError(f"only one of {both} has the tensor {name!r}")
        a, b = mine[name], theirs[name]
        for what in ("shape", "dtype", "device", "requires_grad"):
            here, there = getattr(a, what), getattr(b, what)
            if here != there:
                here, there = (list(v) if what == "shape" else v for v in (here, there))
                raise ModuleError(f"{both} differ in the {what} of {name!r}, {here} and {there}")
        yield a, b


def all_tensors(module: nn.Module) -> Tensors:
    """Parameters and buffers under all their names."""
    parameters = module.named_parameters(remove_duplicate=False)
    return {**dict(parameters), **dict(module.named_buffers(remove_duplicate=False))}


# -- attributes


def _different(
    one: nn.Module, other: nn.Module, counterparts: Iterable[tuple[object, object]]
) -> Iterator[tuple[str, Any, Any]]:
    """The attributes in which two modules differ, hooks and mode included, with both values.

    Counterparts are parts and tensors that stand for each other; they are compared elsewhere.
    """
    mine, theirs = _attributes(one), _attributes(other)
    known = frozenset((id(a), id(b)) for a, b in ((one, other), *counterparts))
    for name in [*mine, *(name for name in theirs if name not in mine)]:
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
