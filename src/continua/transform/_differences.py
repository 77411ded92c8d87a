"""What two layers differ in besides the values of their weights and state."""

from __future__ import annotations

import functools
import inspect
import math
from abc import ABCMeta
from collections.abc import Mapping, Sequence, Set
from fnmatch import fnmatchcase
from types import FunctionType, MethodType
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import type_before_parametrizations as kind_of
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from continua._errors import ModuleError
from continua.field import in_shards, refuse_unsupported, tensor_names

#: parts and tensors of two layers that stand in the same place, by id
Pairs = Set[tuple[int, int]]
#: the attributes of every module, and those that hold its parts and tensors
OWN = vars(nn.Module()).keys()
REGISTRIES = {"_parameters", "_buffers", "_modules"}


class Difference(NamedTuple):
    """An attribute in which two layers differ, and both values."""

    path: str
    one: Any
    other: Any

    def sentence(self, both: str) -> str:
        """Why the layers are not one block."""
        remedy = f"if it does not matter, convert(..., ignore=[{self.path!r}])"
        if self.path.endswith("_hooks"):
            remedy = "remove the hooks, and convert then"
        return (
            f"{both} differ in {self.path!r}, {self.one!r:.60} and {self.other!r:.60}; a block has "
            f"one for all depths: {remedy}"
        )


def differences(
    both: str, one: nn.Module, other: nn.Module, ignore: Sequence[str] = ()
) -> list[Difference]:
    """The attributes in which two layers differ.

    Layers that differ in more, such as in their parts or in the shape of a tensor, are refused.

    Args:
        both: what to call the layers.
        one: a layer.
        other: another.
        ignore: patterns of attributes that are not compared.
    """
    for layer in (one, other):
        refuse_unsupported(layer)
        _refuse_quantized(both, layer)
    parts, others = dict(one.named_modules()), dict(other.named_modules())
    found = []
    pairs = set[tuple[int, int]]()
    for name in parts | others:
        part: Any = parts.get(name)
        counterpart: Any = others.get(name)
        if kind_of(part) is kind_of(counterpart):
            pairs.add((id(part), id(counterpart)))
        elif rate := _dropout(name, part, counterpart):
            found.append(rate)
            del parts[name]
        else:
            raise ModuleError(_different_kinds(both, name, part, counterpart))
    pairs |= _tensor_pairs(both, one, other)
    for name, part in parts.items():
        mine, theirs = _attributes(part), _attributes(others[name])
        for key in mine | theirs:
            here, there = mine.get(key), theirs.get(key)
            if key not in mine or key not in theirs or not _equal(here, there, pairs):
                found.append(Difference(f"{name}.{key}" if name else key, here, there))
    return [d for d in found if not any(fnmatchcase(d.path, pattern) for pattern in ignore)]


def varies(layer: nn.Module, name: str, value: Tensor) -> bool:
    """Whether a tensor of a layer can be a function of depth."""
    if isinstance(value, nn.Parameter):
        return value.is_floating_point() or value.is_complex()
    path, _, key = name.rpartition(".")
    saved = key not in layer.get_submodule(path)._non_persistent_buffers_set
    return value.is_floating_point() and saved and (value.is_meta or bool(value.isfinite().all()))


def all_tensors(module: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers under all their names."""
    parameters = module.named_parameters(remove_duplicate=False)
    return {**dict(parameters), **dict(module.named_buffers(remove_duplicate=False))}


# -- parts and tensors


def _refuse_quantized(both: str, layer: nn.Module) -> None:
    """Refuse packed weights, and weights of a byte each or less."""
    for name, part in layer.named_modules():
        own = [p for p in part._parameters.values() if p is not None]
        packed = any(not in_shards(p) and is_traceable_wrapper_subclass(p) for p in own)
        small = any(p.dtype.itemsize == 1 for p in own)
        if packed or small or ".quantized." in type(part).__module__:
            raise ModuleError(
                f"{name!r} in {both} is quantised, so that its weights cannot vary with depth; "
                "convert the model first, and quantise what revert gives"
            )


def _dropout(name: str, one: Any, other: Any) -> Difference | None:
    """The rates of a dropout and of an identity in its place, which is one at rate 0."""
    for identity, dropout in ((one, other), (other, one)):
        if type(identity) is nn.Identity and "drop" in type(dropout).__name__.lower():
            for key in ("p", "drop_prob"):
                if type(rate := vars(dropout).get(key)) in (int, float):
                    values = (0.0, rate) if identity is one else (rate, 0.0)
                    return Difference(f"{name}.{key}", *values)
    return None


def _different_kinds(both: str, name: str, one: Any, other: Any) -> str:
    where = f"at {name!r}" if name else "in kind"
    kinds = ["nothing" if part is None else kind_of(part).__name__ for part in (one, other)]
    names = ", two classes of one name" if kinds[0] == kinds[1] else ""
    return (
        f"{both} differ {where}, {' and '.join(kinds)}{names}; a block has one field for all depths"
    )


def _tensor_pairs(both: str, one: nn.Module, other: nn.Module) -> Pairs:
    if tensor_names(one)[1] != tensor_names(other)[1]:
        raise ModuleError(f"{both} differ in which of their tensors are the same; untie them")
    mine, theirs = all_tensors(one), all_tensors(other)
    for name in mine | theirs:
        if name not in mine or name not in theirs:
            raise ModuleError(f"only one of {both} has the tensor {name!r}")
        a, b = mine[name], theirs[name]
        for what in ("shape", "dtype", "device", "requires_grad"):
            here, there = getattr(a, what), getattr(b, what)
            if here != there:
                here, there = (list(v) if what == "shape" else v for v in (here, there))
                raise ModuleError(f"{both} differ in the {what} of {name!r}, {here} and {there}")
        if not varies(one, name, a) and not _same_constant(one, name, a, b):
            raise ModuleError(
                f"{both} differ in {name!r}, which cannot vary with depth: it is neither a weight "
                "nor a finite floating-point buffer that is saved"
            )
    return {(id(mine[name]), id(theirs[name])) for name in mine}


def _same_constant(layer: nn.Module, name: str, one: Tensor, other: Tensor) -> bool:
    """Whether two layers agree in a tensor that is no function of depth.

    Counters of batches may differ where they only count: a block has one for all depths.
    """
    path, _, key = name.rpartition(".")
    averages = getattr(layer.get_submodule(path), "momentum", 0) is None
    counts = key == "num_batches_tracked" and not averages
    return counts or one.is_meta or torch.equal(one, other)


# -- attributes


def _attributes(module: nn.Module) -> dict[str, Any]:
    """The attributes of a module, hooks and mode included, without parts and tensors."""
    found = {name: value for name, value in vars(module).items() if name not in REGISTRIES}
    for name in OWN & found.keys():
        if isinstance(found[name], dict):  # hooks, under numbers that mean nothing
            found[name] = list(found[name].values())
    return found


def _equal(one: Any, other: Any, pairs: Pairs) -> bool:
    """Whether two values mean the same, given pairs that do; what cannot be compared does not."""
    if one is other or (id(one), id(other)) in pairs:
        return True
    if type(one) is not type(other):
        return False
    equal = functools.partial(_equal, pairs=pairs | {(id(one), id(other))})
    match one:
        case Tensor():
            same = one.shape == other.shape and one.dtype == other.dtype
            return same and not one.is_meta and torch.equal(one, other)
        case float():
            return one == other or (math.isnan(one) and math.isnan(other))
        case Mapping():
            return one.keys() == other.keys() and all(equal(one[k], other[k]) for k in one)
        case list() | tuple():
            return len(one) == len(other) and all(map(equal, one, other))
        case np.ndarray():
            return np.array_equal(one, other)
        case functools.partial() | MethodType() | FunctionType():
            return equal(_parts_of_function(one), _parts_of_function(other))
        case nn.Module():
            return False  # one that is not registered
    kind: Any = type(one)
    if kind.__eq__ is not object.__eq__:
        try:
            return bool(one == other)
        except Exception:
            return False
    python = type(kind) in (type, ABCMeta)  # others may keep more than their attributes
    return python and hasattr(one, "__dict__") and equal(vars(one), vars(other))


def _parts_of_function(function: Any) -> list[Any]:
    """The code of a function and the values that it reads."""
    if isinstance(function, functools.partial):
        return [function.func, function.args, function.keywords]
    if isinstance(function, MethodType):
        return [function.__func__, function.__self__]
    closed = inspect.getclosurevars(function).nonlocals
    return [function.__code__, closed, function.__defaults__, function.__kwdefaults__]
