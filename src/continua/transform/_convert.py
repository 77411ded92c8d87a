"""A stack of layers as one block."""

from __future__ import annotations

import functools
import inspect
import math
from abc import ABCMeta
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import chain, pairwise
from types import FunctionType, MethodType, NoneType
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import type_before_parametrizations

from continua._errors import ArgumentError, ModuleError, ShapeError
from continua.basis import Basis, Constant, PiecewiseConstant
from continua.block import ODEBlock
from continua.field import Field, copied, refuse_unsupported, tensor, tensor_names
from continua.gradient import Gradient
from continua.solve import Euler

Tensors = dict[str, Tensor]
Skip = Literal["inside", "outside"]
#: what counts batches, of which a block has one
COUNTER = "num_batches_tracked"
#: what every module has, and what of it is not compared as an attribute
OWN = vars(nn.Module()).keys()
ELSEWHERE = {"_parameters", "_buffers", "_modules"}


def convert(
    layers: Iterable[nn.Module],
    *,
    skip: Skip = "inside",
    ignore: str | Sequence[str] = (),
    gradient: Gradient | None = None,
) -> ODEBlock:
    r"""Layers that follow one another, trained or not, as one block that computes the same.

    The layers have one structure, and return what they take in shape. Each becomes a bucket: L of
    them give a block with `PiecewiseConstant(L)`, `Euler(steps=L)` and the span (0, L), whose
    steps have length 1,

    .. math:: z_{l+1} = z_l + f(z_l;\, \theta_l, \sigma_l)

    The block equals the layers up to rounding, and trains as they do; `compress`, another solver
    or `refine` then change its size and depth. Weights of neighbouring layers that were trained
    apart are often far apart: `compress` them with `method="fit"`, and `heal` what is left.

    A tensor that all layers share stays one, constant in depth; its statistics, if it has some,
    are then updated once per forward. One that only some of them share becomes several.

    Args:
        layers: a list, `nn.ModuleList` or `nn.Sequential`; they are not changed.
        skip: where a layer's input is added to its output. `"inside"`: in the layer, as those of
            transformers and most residual networks do, :math:`z_{l+1} = layer_l(z_l)`; the field is
            the layer minus its input. `"outside"`: around it,
            :math:`z_{l+1} = z_l + layer_l(z_l)`; the field is the layer.
        ignore: patterns of attributes in which the layers may differ, such as `"*.drop_prob"`;
            all depths get the first layer's. Others are refused.
        gradient: how the block is differentiated; None is back-propagation.

    Example:
        >>> import continua as ct
        >>> make = lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, norm_first=True)
        >>> layers = nn.Sequential(*[make() for _ in range(4)]).eval()
        >>> block = ct.convert(layers)
        >>> x = torch.randn(3, 5, 8)
        >>> torch.allclose(block(x), layers(x), atol=1e-5)
        True
        >>> ct.compress(block, ct.PiecewiseConstant(2), steps=2).solver
        Euler(steps=2)
    """
    if skip not in get_args(Skip):
        raise ArgumentError(f"skip is 'inside' or 'outside', not {skip!r}")
    made = _checked(layers, skip)
    ignored = [ignore] if isinstance(ignore, str) else list(ignore)
    for i, (one, other) in enumerate(pairwise(made)):
        _compare(f"layers {i} and {i + 1}", one, other, ignored)
    first = copied(made[0])
    for parameter in first.parameters():  # what is frozen would stay out of the expansion
        parameter.requires_grad_(parameter.is_floating_point() or parameter.is_complex())
    field, prefix = (Increment(first), "layer.") if skip == "inside" else (first, "")
    count = len(made)
    buckets = PiecewiseConstant(count)
    block = ODEBlock(field, buckets, Euler(steps=count), gradient, span=(0.0, float(count)))
    every = [_tensors(layer) for layer in made]
    columns = {prefix + name: [tensors[name] for tensors in every] for name in every[0]}
    stacks: dict[str, tuple[Basis, Tensor]] = {}
    for name, values in columns.items():
        if name in block.expansion.bases:
            shared = count > 1 and all(value is values[0] for value in values)
            kept = values[:1] if shared else values
            stacks[name] = (Constant() if shared else buckets, _stacked(kept))
        elif name not in chain(*block.expansion.aliases.values()):
            _check_same(block.field, name, values)
    block.rebase(stacks)
    for name in block.expansion.weights:
        tensor(block.field, name).requires_grad_(columns[name][0].requires_grad)
    block.training = block.field.training = made[0].training
    return block


class Increment(nn.Module):
    """What a layer adds to its input, as a field."""

    def __init__(self, layer: nn.Module):
        super().__init__()
        self.layer = layer

    def forward(self, z: Tensor, /, *args: Any, **kwargs: Any) -> Tensor:
        out = self.layer(z, *args, **kwargs)
        name = type(self.layer).__name__
        if not isinstance(out, Tensor):
            raise ShapeError(
                f"{name} returns a {type(out).__name__}; a layer of a block takes and returns one "
                "tensor: wrap it in a module that picks it"
            )
        if out.shape != z.shape:
            raise ShapeError(
                f"{name} maps {list(z.shape)} to {list(out.shape)}; a layer of a block keeps the "
                "shape of its input"
            )
        return out - z


def _checked(layers: Iterable[nn.Module], skip: Skip) -> list[nn.Module]:
    if isinstance(layers, Mapping | nn.ModuleDict):
        layers = layers.values()
    if not isinstance(layers, Iterable) or isinstance(layers, str | bytes | Tensor):
        raise ArgumentError(
            f"layers is a list, an nn.ModuleList or an nn.Sequential, not {type(layers).__name__}"
        )
    made = list(layers)
    if not made:
        raise ArgumentError("layers is empty: a block needs at least one")
    for i, layer in enumerate(made):
        if not isinstance(layer, nn.Module):
            raise ModuleError(f"layer {i} is a {type(layer).__name__}, not an nn.Module")
        if isinstance(layer, Field) and skip == "inside":
            raise ModuleError(
                f"layer {i} is a Field, which gives dz/ds and adds nothing itself: skip='outside'"
            )
        refuse_unsupported(layer)
    return made


def _compare(both: str, one: nn.Module, other: nn.Module, ignore: Sequence[str]) -> None:
    """Refuse two layers that differ in more than the values of weights and state."""
    parts, others = dict(one.named_modules()), dict(other.named_modules())
    for name in [*parts, *(others.keys() - parts.keys())]:
        # A parametrized module has a class of its own.
        here, there = (
            type_before_parametrizations(modules[name]) if name in modules else NoneType
            for modules in (parts, others)
        )
        if here is not there:
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
    counterparts += _paired_tensors(both, _tensors(one), _tensors(other))
    for name, part in parts.items():
        for key, a, b in _different(part, others[name], counterparts):
            path = f"{name}.{key}" if name else key
            if not any(fnmatchcase(path, pattern) for pattern in ignore):
                texts = (
                    text if len(text) <= 60 else f"{text[:57]}..." for text in map(repr, (a, b))
                )
                raise ModuleError(
                    f"{both} differ in {path!r}, {' and '.join(texts)}; a block has "
                    f"one for all depths: if it does not matter, convert(..., ignore=[{path!r}])"
                )


def _paired_tensors(both: str, mine: Tensors, theirs: Tensors) -> Iterator[tuple[Any, Any]]:
    for name in [*mine, *(theirs.keys() - mine.keys())]:
        if name not in mine or name not in theirs:
            raise ModuleError(f"only one of {both} has the tensor {name!r}")
        a, b = mine[name], theirs[name]
        for what in ("shape", "dtype", "device", "requires_grad"):
            here, there = getattr(a, what), getattr(b, what)
            if here != there:
                here, there = (list(v) if what == "shape" else v for v in (here, there))
                raise ModuleError(f"{both} differ in the {what} of {name!r}, {here} and {there}")
        yield a, b


def _check_same(field: nn.Module, name: str, values: Sequence[Tensor]) -> None:
    """Refuse what is no function of depth and yet differs from layer to layer."""
    path, _, key = name.rpartition(".")
    counts = key == COUNTER and getattr(field.get_submodule(path), "momentum", 0) is not None
    if counts or values[0].is_meta:
        return
    for i, (one, other) in enumerate(pairwise(values)):
        if not torch.equal(one, other):
            raise ModuleError(
                f"layers {i} and {i + 1} differ in {name.removeprefix('layer.')!r}, which cannot "
                "vary with depth: it is neither a weight nor a finite floating-point buffer that "
                "is saved"
            )


def _tensors(module: nn.Module) -> Tensors:
    """Parameters and buffers under all their names."""
    parameters = module.named_parameters(remove_duplicate=False)
    return {**dict(parameters), **dict(module.named_buffers(remove_duplicate=False))}


def _stacked(values: Sequence[Tensor]) -> Tensor:
    """The values one behind the other, each in the memory layout that it has."""
    order = sorted(range(values[0].dim()), key=values[0].stride, reverse=True)
    rows = torch.stack([value.detach().permute(order) for value in values])
    back = [order.index(d) + 1 for d in range(len(order))]
    return rows.permute(0, *back)


# -- whether two modules of one class are the same but for their tensors and parts


def _different(
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
