"""Layers of one structure as the coefficients of one block, and what they take and return."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from continua._errors import ShapeError
from continua.basis import Basis, Constant, PiecewiseConstant
from continua.block import ODEBlock
from continua.field import copied, real, refuse_unsupported, tensor, values_at

from ._differences import varies


class Increment(nn.Module):
    """What a layer adds to its input, as a field."""

    def __init__(self, layer: nn.Module):
        super().__init__()
        self.layer = layer

    def forward(self, z: Tensor, /, *args: Any, **kwargs: Any) -> Tensor:
        out = self.state(self.layer(z, *args, **kwargs))
        check_shape(self.layer, z, out)
        return out - z

    def state(self, out: Any) -> Tensor:
        """The state in the output of the layer."""
        if not isinstance(out, Tensor):
            raise ShapeError(
                f"{type(self.layer).__name__} returns a {type(out).__name__}; a layer of a block "
                "takes and returns one tensor: wrap it in a module that picks it"
            )
        return out


class LayerIncrement(Increment):
    """What a layer of a model adds to its hidden state."""

    def state(self, out: Any) -> Tensor:
        return hidden(out)


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
    refuse_unsupported(layer)
    memo: dict[int, Any] = {
        id(p): nn.Parameter(torch.empty_like(p, device="meta"))
        for name, p in layer.named_parameters()
        if varies(layer, name, p)
    }
    return copied(layer, memo)


def fill(block: ODEBlock, layers: Sequence[nn.Module], *, move: bool = False) -> None:
    """Give a block the tensors of layers, one bucket for each.

    Args:
        block: of the `template` of a layer, or of its `Increment`.
        layers: have one structure.
        move: True makes the layers' tensors views of the coefficients, so that they need no
            memory of their own.
    """
    prefix = "layer." if isinstance(block.field, Increment) else ""
    stacks: dict[str, tuple[Basis, Tensor]] = {}
    for name in block.expansion.bases:
        values = [tensor(layer, name.removeprefix(prefix)) for layer in layers]
        basis: Basis = PiecewiseConstant(len(layers))
        if len(layers) > 1 and all(value is values[0] for value in values):
            basis, values = Constant(), values[:1]
        stack = _stack_tensors(values, move)
        if name in block.expansion.weights:
            stack = nn.Parameter(stack, values[0].requires_grad)
        stacks[name] = basis, stack
    block.rebase(stacks)
    block.training = block.field.training = layers[0].training


def _stack_tensors(values: Sequence[Tensor], move: bool) -> Tensor:
    """The values in one tensor, each in the memory layout that it has.

    One after another, so that moving them takes little more memory than they have.
    """
    order = sorted(range(values[0].dim()), key=values[0].stride, reverse=True)
    back = [order.index(d) + 1 for d in range(len(order))]
    first = values[0].detach().permute(order)
    made = first.new_empty((len(values), *first.shape)).permute(0, *back)
    for i, value in enumerate(values):
        made[i].copy_(value.detach())
        if move:
            value.data = made[i]
    return made


def stage_tensors(block: ODEBlock) -> dict[str, list[Tensor]]:
    """The weights and state of a block at every evaluation of its solver.

    Evaluations that read the same value get the same tensor.
    """
    plan, expansion = block.plan, block.expansion
    assert plan is not None
    found = {}
    for name, basis in expansion.bases.items():
        stack, sampling = tensor(block.field, name), plan.samplings[basis]
        rows = sampling.rows
        if rows is not None:
            rows = rows.to(stack.device, real(stack.dtype))
        values = values_at({name: basis}, {name: stack}, {basis: rows}, expansion.constraints)
        distinct = values[name].unbind(0)
        found[name] = [distinct[i] for i in sampling.index]
    return found


def copy_like(stack: Tensor, value: Tensor) -> Tensor:
    """A copy of a value, which is a parameter if the coefficients are."""
    value = value.detach().clone()
    return nn.Parameter(value, stack.requires_grad) if isinstance(stack, nn.Parameter) else value
