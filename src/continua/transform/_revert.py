"""Plain layers in the place of blocks that `convert` made."""

from __future__ import annotations

import copy
from typing import Any, TypeVar

from torch import nn

from continua._errors import ArgumentError

from ._blocks import refuse_elastic, set_recipe
from ._stack import lists

M = TypeVar("M", bound=nn.Module)


def revert(model: M) -> M:
    """The model with plain layers again, without anything of continua in it.

    Each step of a block that `convert` put into a model becomes a layer of the original class, in
    a list of the original kind. After `compress` there are fewer of them, and the numbers of
    layers in the `config` of a Hugging Face model say so: `save_pretrained` and `from_pretrained`
    work as for any model of this size.

    Args:
        model: what `convert` made of a model, compressed or not; it is not changed.

    Example:
        >>> import continua as ct
        >>> layer = nn.TransformerEncoderLayer(8, 2, 16)
        >>> encoder = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
        >>> small = ct.compress(ct.convert(encoder), ct.PiecewiseConstant(2), steps=2)
        >>> [type(layer).__name__ for layer in ct.revert(small).layers]
        ['TransformerEncoderLayer', 'TransformerEncoderLayer']
    """
    refuse_elastic(model)
    if not isinstance(model, nn.Module):
        raise ArgumentError(f"a model is an nn.Module, not {type(model).__name__}")
    found = lists(model)
    if not found:
        raise ArgumentError(
            f"{type(model).__name__} has no layers that continua.convert(model) has converted"
        )
    memo: dict[Any, Any] = {}
    plain = {}
    for one in found:
        empty = nn.Sequential() if isinstance(one, nn.Sequential) else nn.ModuleList()
        memo[id(one)] = plain[id(one)] = empty
    made = copy.deepcopy(model, memo)
    for one in found:
        empty = plain[id(one)]
        own = {
            name: value for name, value in vars(one).items() if name not in ("_modules", "whole")
        }
        vars(empty).update(copy.deepcopy(own, memo))
        one.plain(memo, empty)
    set_recipe(made, None)
    return made
