"""Layers of one structure as the coefficients of one block."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from itertools import chain, pairwise
from typing import Any

import torch
from torch import Tensor, nn

from continua._errors import ModuleError, ShapeError
from continua.basis import Basis, Constant, PiecewiseConstant
from continua.block import ODEBlock
from continua.field import copied, tensor

from ._alike import all_tensors

#: what counts batches, of which a block has one
COUNTER = "num_batches_tracked"


class Increment(nn.Module):
    """What a layer adds to its input, as a field."""

    def __init__(self, layer: nn.Module):
        super().__init__()
        self.layer = layer

    def forward(self, z: Tensor, /, *args: Any, **kwargs: Any) -> Tensor:
        out = self.layer(z, *args, **kwargs)
        if not isinstance(out, Tensor):
            raise ShapeError(
                f"{type(self.layer).__name__} returns a {type(out).__name__}; a layer of a block "
                "takes and returns one tensor: wrap it in a module that picks it"
            )
        check_shape(self.layer, z, out)
        return out - z


class LayerIncrement(Increment):
    """What a layer of a model adds to its hidden state."""

    def forward(self, z: Tensor, /, *args: Any, **kwargs: Any) -> Tensor:
        out = hidden(self.layer(z, *args, **kwargs))
        check_shape(self.layer, z, out)
        return out - z


def check_shape(layer: nn.Module, z: Tensor, out: Tensor) -> None:
    """Refuse a layer whose output cannot be its next input."""
    if not out.is_nested and out.shape != z.shape:  # torch's encoder nests padded batches
        raise ShapeError(
            f"{type(layer).__name__} maps {list(z.shape)} to {list(out.shape)}; a layer of a "
            "block keeps the shape of its input"
        )


def hidden(out: Any) -> Tensor:
    """The hidden state in the output of a layer: the first of what it returns."""
    if isinstance(out, Mapping):
        out = next(iter(out.values()))
    found: Tensor = out[0] if isinstance(out, list | tuple) else out
    return found


def with_hidden(out: Any, z: Tensor) -> Any:
    """The output of a layer with another hidden state."""
    if isinstance(out, Mapping):
        made: Any = copy.copy(out)
        made[next(iter(out))] = z
        return made
    return type(out)((z, *out[1:])) if isinstance(out, list | tuple) else z


def is_cache(value: Any) -> bool:
    """Whether an argument keeps keys and values of every layer."""
    return any(kind.__name__ == "Cache" for kind in type(value).__mro__)


def template(layer: nn.Module) -> nn.Module:
    """A copy of a layer to make a block of, its weights without memory and none of them frozen."""
    memo: dict[int, Any] = {
        id(p): nn.Parameter(torch.empty_like(p, device="meta"))
        for p in layer.parameters()
        if varies(p)
    }
    return copied(layer, memo)


def varies(parameter: Tensor) -> bool:
    """Whether a parameter can be a function of depth."""
    return parameter.is_floating_point() or parameter.is_complex()


def fill(block: ODEBlock, prefix: str, layers: Sequence[nn.Module], *, move: bool = False) -> None:
    """Give a block the tensors of layers, one bucket for each.

    Args:
        block: of the first layer's `template`.
        prefix: of the layer's names in the field.
        layers: have one structure.
        move: whether the memory of the layers is given up on the way.
    """
    count = len(layers)
    buckets = PiecewiseConstant(count)
    every = [all_tensors(layer) for layer in layers]
    columns = {prefix + name: [tensors[name] for tensors in every] for name in every[0]}
    further = {*chain(*block.expansion.aliases.values())}
    for name, values in columns.items():
        if name not in block.expansion.bases and name not in further:
            _check_same(block.field, name, values)
    trained = {name: columns[name][0].requires_grad for name in block.expansion.weights}
    stacks: dict[str, tuple[Basis, Tensor]] = {}
    for name in block.expansion.bases:
        values = columns.pop(name)
        shared = count > 1 and all(value is values[0] for value in values)
        kept = values[:1] if shared else values
        stacks[name] = (Constant() if shared else buckets, _stacked(kept, move))
    block.rebase(stacks)
    for name, trains in trained.items():
        tensor(block.field, name).requires_grad_(trains)
    block.training = block.field.training = layers[0].training


def _check_same(field: nn.Module, name: str, values: Sequence[Tensor]) -> None:
    """Refuse what is no function of depth and yet differs from layer to layer."""
    for i, (one, other) in enumerate(pairwise(values)):
        if not same_constant(field, name, one, other):
            raise ModuleError(
                f"layers {i} and {i + 1} differ in {name.removeprefix('layer.')!r}, {CONSTANT_ONLY}"
            )


CONSTANT_ONLY = (
    "which cannot vary with depth: it is neither a weight nor a finite floating-point buffer that "
    "is saved"
)


def same_constant(module: nn.Module, name: str, one: Tensor, other: Tensor) -> bool:
    """Whether two layers agree in a tensor that is no function of depth."""
    path, _, key = name.rpartition(".")
    counts = key == COUNTER and getattr(module.get_submodule(path), "momentum", 0) is not None
    return counts or one.is_meta or torch.equal(one, other)


def _stacked(values: Sequence[Tensor], move: bool) -> Tensor:
    """The values one behind the other, each in the memory layout that it has.

    Row by row, so that moving them takes little more memory than they have.
    """
    order = sorted(range(values[0].dim()), key=values[0].stride, reverse=True)
    back = [order.index(d) + 1 for d in range(len(order))]
    first = values[0].detach().permute(order)
    rows = first.new_empty((len(values), *first.shape))
    made = rows.permute(0, *back)
    for i, value in enumerate(values):
        made[i].copy_(value.detach())
        if move:
            value.data = made[i]
    return made
