"""Plain layers in the place of blocks that `convert` made."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Sequence
from typing import Any, TypeVar

import torch
from torch import nn

from continua._errors import ArgumentError
from continua.basis import PiecewiseConstant
from continua.block import ODEBlock

from ._blocks import blocks_if_any, refuse_elastic, set_recipe
from ._layers import LayerBlock
from ._stack import layer_lists

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
    found = blocks_if_any(model)
    made, names = to_plain_layers(model)
    for name, block in found.items():
        if isinstance(block, LayerBlock):
            _warn_of_copies(name, block)
    _check_config(made, names)
    return made


def _warn_of_copies(name: str, block: LayerBlock) -> None:
    """Warn of weights that steps share and plain layers have several times."""
    bases = block.expansion.weights.values()
    sets = max((basis.size for basis in bases if isinstance(basis, PiecewiseConstant)), default=0)
    if 0 < sets < min(block.steps, block.layout.units):
        warnings.warn(
            f"the {block.steps} layers of block {name!r} share {sets} sets of weights, and are "
            f"{block.steps} sets as plain layers; compress with steps={sets} for {sets} layers",
            stacklevel=3,
        )


def to_plain_layers(model: M) -> tuple[M, list[str]]:
    """The model with plain layers, and the names of the lists that hold them."""
    refuse_elastic(model)
    found = layer_lists(model)
    if not found:
        alone = isinstance(model, ODEBlock)
        raise ArgumentError(
            "a list of layers by itself becomes one block, which continua.unroll(block) writes out "
            "as layers; revert is for the model around it"
            if alone
            else f"{type(model).__name__} has no layers that continua.convert(model) has converted"
        )
    # The memo of the copy holds plain lists in the place of those with blocks.
    memo: dict[Any, Any] = {
        id(one): nn.Sequential() if isinstance(one, nn.Sequential) else nn.ModuleList()
        for one in found.values()
    }
    plain = [memo[id(one)] for one in found.values()]
    made = copy.deepcopy(model, memo)
    for one, empty in zip(found.values(), plain, strict=True):
        own = {k: value for k, value in vars(one).items() if k not in ("_modules", "whole")}
        vars(empty).update(copy.deepcopy(own, memo))
        for name, layer in one.plain_layers(memo).items():
            empty.add_module(name, layer)
    set_recipe(made, None)
    return made, list(found)


def _check_config(model: nn.Module, names: Sequence[str]) -> None:
    """Warn if the class of a model makes other layers of its config than the model has.

    Args:
        model: one of `transformers`; any other is not checked.
        names: of the lists of layers to look at.
    """
    kind: Any = type(model)
    config: Any = getattr(model, "config", None)
    if getattr(kind, "config_class", None) is None or not hasattr(config, "to_dict"):
        return

    def shapes(one: nn.Module) -> dict[str, torch.Size]:
        state = one.state_dict(keep_vars=True)
        return {n: t.shape for n, t in state.items() if n.startswith(tuple(f"{x}." for x in names))}

    try:
        with torch.device("meta"), torch.random.fork_rng(devices=[]):
            again = kind(kind.config_class.from_dict(config.to_dict()))
        if shapes(again) == shapes(model):
            return
        why = f"{kind.__name__}(config) makes other layers"
    except Exception as error:  # a class may raise anything on a config that it does not take
        why = str(error).strip().partition("\n")[0]
    warnings.warn(
        f"the config of {kind.__name__} does not say how many layers it has now, so that "
        f"from_pretrained cannot load what save_pretrained writes, unless you change it ({why}); "
        "continua.save stores the model before it is reverted",
        stacklevel=3,
    )
