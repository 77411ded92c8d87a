"""Converted models of `transformers` as files: the caller gives the class, the file the config."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch import nn

from continua.transform import LayerBlock, Recipe, blocks_if_any, convert_runs, runs_at

from ._factory import qualified


def hosted_recipe(model: nn.Module) -> Recipe | None:
    """The factory and the arguments of a converted model with a config; None for any other model.

    The config is that before `compress`: the blocks in the file describe the model after it.
    """
    blocks = {name: b for name, b in blocks_if_any(model).items() if isinstance(b, LayerBlock)}
    config: Any = getattr(model, "config", None)
    if not blocks or not hasattr(config, "to_json_string"):
        return None
    # One copy of all, since the layouts refer to the config. In reverse order: a change of a run
    # moves what is after it.
    layouts = [(replace(b.layout, behind=[]), b.steps) for b in blocks.values()]
    config, layouts = copy.deepcopy((config, layouts))
    for layout, steps in reversed(layouts):
        layout.note(steps, layout.units)
    runs: dict[str, list[list[int]]] = {}
    for name, block in blocks.items():
        holder, _, start = name.rpartition(".block")  # the number before `compress`
        units, period = block.layout.units, block.layout.period
        runs.setdefault(holder, []).append([int(start), int(start) + units * period, period])
    arguments = {
        "config": json.loads(config.to_json_string(use_diff=False)),
        "runs": runs,
        "ignore": sorted({p for b in blocks.values() for p in b.layout.ignore}),
    }
    return Recipe(type(model), qualified(type(model)), arguments)


def hosted_factory(factory: Callable[..., nn.Module]) -> Callable[..., nn.Module] | None:
    """A factory of converted models of a class that has a config; None for any other factory."""
    # The class, or a `functools.partial` of it.
    kind: Any = getattr(getattr(factory, "func", factory), "config_class", None)
    if kind is None:
        return None

    def make(
        config: Any, runs: Mapping[str, Sequence[Sequence[int]]], ignore: Sequence[str]
    ) -> nn.Module:
        host = factory(kind.from_dict(_without_code(config)))
        return convert_runs(host, runs_at(host, runs, ignore))

    return make


def _without_code(config: Any) -> Any:
    """A config without the entries that name code for `transformers` to import or download."""
    if isinstance(config, list):
        return [_without_code(value) for value in config]
    if not isinstance(config, dict):
        return config
    return {
        key: _without_code(value)
        for key, value in config.items()
        if key not in ("auto_map", "kernel_config") and "_implementation" not in key
    }
