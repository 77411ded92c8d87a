"""Models as files: safetensors and JSON, never pickle."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save as save_tensors
from torch import Tensor, nn

from continua._errors import ArgumentError, FileError
from continua.block import ODEBlock
from continua.transform import Elastic, blocks_if_any, recipe_of, set_recipe

from ._disk import as_json, sha256, write_files
from ._elastic import elastic_config
from ._factory import Factory, describe, encoded_value

FORMAT, WEIGHTS, CONFIG = 1, "model.safetensors", "config.json"


def build(factory: Factory, /, **arguments: Any) -> nn.Module:
    """Call a factory and store the call with the model, so that the model can be saved.

    Args:
        factory: an `nn.Module` class, or a function that returns one.
        arguments: of JSON values, bases, solvers and gradients.

    Example:
        >>> import continua as ct
        >>> ct.build(nn.Linear, in_features=2, out_features=1)
        Linear(in_features=2, out_features=1, bias=True)
    """
    recipe = describe(factory, arguments)
    model = factory(**arguments)
    if not isinstance(model, nn.Module):
        raise ArgumentError(f"{recipe.name} makes {type(model).__name__}, not an nn.Module")
    set_recipe(model, recipe)
    return model


def save(
    model: nn.Module,
    folder: str | os.PathLike[str],
    factory: Factory | None = None,
    arguments: Mapping[str, Any] | None = None,
) -> Path:
    """Write a model to a folder, as `model.safetensors` and `config.json`.

    Both files are complete before either takes the place of an older one.

    Args:
        model: made by `build` or `load`, or with the factory given here; `refine` and
            `compress` keep the factory and its arguments. One file holds all sizes of an
            `Elastic`, but not a function that it was given as `teach`.
        folder: made if it does not exist.
        factory: what makes a model of this kind, if `build` did not record it.
        arguments: what to call the factory with.

    Returns:
        The folder.
    """
    plain = model.model if isinstance(model, Elastic) else model
    recipe = recipe_of(plain) if factory is None else describe(factory, dict(arguments or {}))
    if recipe is None:
        raise ArgumentError(
            f"how to make this {type(plain).__name__} again is not known; make it with "
            "continua.build(factory, ...), or give save the factory and its arguments"
        )
    tensors = unique_tensors(model)
    weights = save_tensors(tensors, metadata={"format": "pt"})
    about = {"bytes": len(weights), "sha256": sha256(weights), "dtype": _float_types(tensors)}
    config = {
        "format": FORMAT,
        "factory": {"name": recipe.name, "arguments": recipe.arguments},
        "blocks": {name: _block_config(block) for name, block in blocks_if_any(plain).items()},
        "weights": about,
    }
    if isinstance(model, Elastic):
        config["elastic"] = elastic_config(model)
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_files(folder, {WEIGHTS: weights, CONFIG: as_json(config)})
    except OSError as error:
        raise FileError(f"cannot write to {folder}: {error.strerror or error}") from error
    return folder


def unique_tensors(model: nn.Module) -> dict[str, Tensor]:
    """The state of the model, a tied tensor under its first name only."""
    tensors: dict[str, Tensor] = {}
    seen: set[tuple[int, torch.Size]] = set()
    for name, value in model.state_dict().items():
        if not isinstance(value, Tensor):
            raise ArgumentError(f"the entry {name!r} of the model's state is not a tensor")
        key = (value.data_ptr(), value.shape)
        if not value.numel() or key not in seen:
            tensors[name] = value.detach().cpu().contiguous()
        seen.add(key)
    return tensors


def _block_config(block: ODEBlock) -> dict[str, Any]:
    bases = block.expansion.bases
    return {
        "solver": encoded_value(block.solver),
        "gradient": encoded_value(block.gradient),
        "span": list(block.span),
        "bases": {name: encoded_value(basis) for name, basis in bases.items()},
    }


def _float_types(tensors: Mapping[str, Tensor]) -> str | dict[str, str] | None:
    """What the model was cast to: the dtype of its floats, or of each of them if they differ."""
    each = {
        name: str(value.dtype).removeprefix("torch.")
        for name, value in tensors.items()
        if value.is_floating_point()
    }
    return each if len(set(each.values())) > 1 else next(iter(each.values()), None)
