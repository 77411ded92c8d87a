"""Attention as a function of depth."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from continua._errors import ArgumentError
from continua.block import ODEBlock

from ._attention import EncoderLayer
from ._tagger import EncoderStack, Tagger


def attention_maps(model: Tagger, tokens: Tensor, depths: Sequence[float] | None = None) -> Tensor:
    """How much each word attends to each other one, along the depth of a tagger.

    Args:
        model: a continuous tagger, or the discrete transformer.
        tokens: the numbers of the words, `[B, T]`.
        depths: where to look, inside the span of the block; None is the start of every step of
            its fixed grid. The discrete transformer has one map per layer, and no depths.

    Returns:
        The attention, `[S, B, heads, T, T]`: S depths, and for each word a row that sums to one.

    Figure 1 of Stateful ODE-Nets (Queiruga et al. 2021).

    Example:
        >>> import continua as ct
        >>> from continua.models import continuous_tagger
        >>> net = continuous_tagger(
        ...     vocabulary=9, tags=3, width=8, basis=ct.PiecewiseLinear(3), solver=ct.RK4(steps=2)
        ... )
        >>> attention_maps(net, torch.tensor([[2, 7, 8, 0]]), depths=[0.0, 0.3, 1.0]).shape
        torch.Size([3, 1, 1, 4, 4])
    """
    encoder = model.encoder if isinstance(model, Tagger) else None
    if isinstance(encoder, ODEBlock) and isinstance(encoder.field, EncoderLayer):
        with torch.no_grad():
            return _along(encoder, *model.embed(tokens), depths)
    if isinstance(encoder, EncoderStack):
        if depths is not None:
            raise ArgumentError("a discrete tagger has one map per layer; leave depths out")
        with torch.no_grad():
            return _by_layer(encoder, *model.embed(tokens))
    raise ArgumentError(
        "attention maps need a continuous_tagger or a transformer_tagger; "
        f"this {type(model).__name__} has no attention"
    )


def _along(block: ODEBlock, z: Tensor, mask: Tensor, depths: Sequence[float] | None) -> Tensor:
    if depths is None:
        if block.solver.evaluations(block.span) is None:
            raise ArgumentError(f"{block.solver!r} has no fixed grid; say at which depths to look")
        solution = block.solve(z, mask=mask, save_at="steps")
        where = asked = solution.s[:-1].tolist()
    else:
        low, high = block.span
        asked = [float(s) for s in depths]
        wrong = [s for s in asked if not low <= s <= high]
        if wrong or not asked:
            what = f"{wrong[0]:g}" if wrong else "an empty list"
            raise ArgumentError(f"depths lie in the span ({low:g}, {high:g}), unlike {what}")
        where = sorted(set(asked))
        solution = block.solve(z, mask=mask, save_at=where)
    maps = {}
    for s, state in zip(where, solution.z, strict=False):
        layer = block.at(s)
        assert isinstance(layer, EncoderLayer)
        maps[s] = _map(layer, state, mask)
    return torch.stack([maps[s] for s in asked])


def _by_layer(stack: EncoderStack, z: Tensor, mask: Tensor) -> Tensor:
    maps = []
    for layer in stack.layers:
        assert isinstance(layer, EncoderLayer)
        maps.append(_map(layer, z, mask))
        z = z + layer(z, mask)
    return torch.stack(maps)


def _map(layer: EncoderLayer, z: Tensor, mask: Tensor) -> Tensor:
    return layer.attention.weights(layer.norm1(z), mask)
