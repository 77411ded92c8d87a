"""Converted models of `transformers` as files: the class is handed over, the config is stored."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Sequence
from typing import Any

from torch import nn

from continua.transform import LayerBlock, blocks_if_any, convert


def hosted_recipe(model: nn.Module) -> dict[str, Any] | None:
    """How to make a converted model with a config of its own again, as a factory and arguments.

    None for any other model. The config is that of the model before a cut: the blocks in the file
    say what they are now.
    """
    blocks = {n: b for n, b in blocks_if_any(model).items() if isinstance(b, LayerBlock)}
    config: Any = getattr(model, "config", None)
    if not blocks or not hasattr(config, "to_json_string"):
        return None
    # One copy of all, since the blocks refer to the config.
    config, layouts = copy.deepcopy((config, [(b.layout, b.steps) for b in blocks.values()]))
    for layout, steps in layouts:
        layout.note(steps, layout.units)
    kind = type(model)
    return {
        "name": f"{kind.__module__}:{kind.__qualname__}",
        "arguments": {
            "config": json.loads(config.to_json_string(use_diff=False)),
            "only": sorted({name.rpartition(".")[0] for name in blocks}),
            "ignore": sorted({p for b in blocks.values() for p in b.layout.ignore}),
        },
    }


def as_factory(factory: Callable[..., nn.Module]) -> Callable[..., nn.Module]:
    """What makes a model of a file: a class with a config makes a converted model of it."""
    kind: Any = getattr(factory, "config_class", None)
    if kind is None:
        return factory

    def made(config: Any, only: Sequence[str], ignore: Sequence[str]) -> nn.Module:
        host = factory(kind.from_dict(config))
        return convert(host, only=only, ignore=ignore, copy=False)

    return made
