"""The layers at the steps of a block in compiled code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from continua.field import slot

from ._stacking import check_shape, hidden, stage_tensors, with_hidden

if TYPE_CHECKING:
    from ._layers import LayerBlock


class CompiledLayer:
    """A layer of a block that has the weights of one step while it is called.

    Compiled code has no modules of its own, so the layer is the block's.

    Args:
        layer: of the block.
        places: dictionaries, a key of each, and what stands there during a call.
        width: how much of a layer the step is; None leaves the output as it is.
    """

    def __init__(self, layer: nn.Module, places: list[tuple[Any, str, Any]], width: float | None):
        self._layer, self._places, self._width = layer, places, width

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        before = [registry[key] for registry, key, _ in self._places]
        for registry, key, value in self._places:
            registry[key] = value
        out = self._layer(*args, **kwargs)
        for (registry, key, _), old in zip(self._places, before, strict=True):
            registry[key] = old
        if self._width is not None:
            z = args[0] if args else next(iter(kwargs.values()))
            end = hidden(out)
            check_shape(self._layer, z, end)
            if self._width != 1:
                out = with_hidden(out, torch.lerp(z, end, self._width))
        return out

    def __getattr__(self, name: str) -> Any:
        return getattr(self._layer, name)


def compiled_layers(block: LayerBlock) -> list[Any]:
    """The layers at the steps of a block, to be called one after another."""
    layout, values = block.layout, stage_tensors(block)
    unit: Any = block.field.layer
    width = block.width if layout.period == 1 and block.steps != layout.units else None
    made: list[Any] = []
    for i in range(block.steps):
        places = [
            (*slot(block.field, alias), steps[i])
            for name, steps in values.items()
            for alias in block.expansion.names(name)
        ]
        for part, name, value in layout.settings(i, block.steps):
            places.append((vars(unit.get_submodule(part)), name, value))
        layers = list(unit) if layout.period > 1 else [unit]
        made += [CompiledLayer(layer, places, width) for layer in layers]
    return made
