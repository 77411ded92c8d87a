"""Models as files: safetensors and JSON, never pickle."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save as save_tensors
from torch import Tensor, nn

from continua._errors import ArgumentError, FileError
from continua.field import copied, gathered, is_first, is_sharded
from continua.transform import Elastic, LayerBlock, Recipe, blocks_if_any, recipe_of, set_recipe

from ._blocks import block_config, configure_blocks
from ._disk import as_json, sha256, write_files
from ._factory import Factory, check_grids, decode, describe, encode
from ._hosted import hosted_recipe

SETTING = (bool, int, float, str, tuple)
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

    The files hold weights and sizes, not code: `load` needs the class or function that makes the
    model, too. Both files are complete before either takes the place of an older one.

    Args:
        model: made by `build` or `load`, or with the factory given here; `refine` and
            `compress` keep the factory and its arguments. One file holds all sizes of an
            `Elastic`. A converted model of `transformers` needs no factory: its own config is
            stored. Of a model in shards (FSDP2), every process that holds a part makes this call
            and the first of them writes.
        folder: made if it does not exist.
        factory: what makes a model of this kind, if `build` did not record it. Either is called
            once, if it can be on the meta device, to check that names and shapes are those of the
            model.
        arguments: what to call the factory with.

    Returns:
        The folder.

    Example:
        >>> import tempfile
        >>> import continua as ct
        >>> class Net(nn.Module):
        ...     def __init__(self, width: int):
        ...         super().__init__()
        ...         self.block = ct.ODEBlock(nn.Linear(width, width), ct.PiecewiseConstant(4))
        >>> folder = save(Net(8), tempfile.mkdtemp(), factory=Net, arguments={"width": 8})
        >>> ct.load(folder, factory=Net).block.basis
        PiecewiseConstant(4)
    """
    files = model_files(model, factory, arguments)
    if not is_sharded(model) or is_first(model):
        write_files(Path(folder), files)
    return Path(folder)


def model_files(
    model: nn.Module, factory: Factory | None = None, arguments: Mapping[str, Any] | None = None
) -> dict[str, bytes]:
    """The content of the files that `save` writes."""
    if not isinstance(model, nn.Module):
        raise ArgumentError(f"the model is an nn.Module, not {type(model).__name__}")
    if not isinstance(arguments, Mapping | None):
        raise ArgumentError(
            "arguments is a dictionary by name, such as {'width': 8}, not "
            f"{type(arguments).__name__}"
        )
    model = gathered(model)
    plain = model.model if isinstance(model, Elastic) else model
    recipe = recipe_of(plain) if factory is None else describe(factory, dict(arguments or {}))
    if recipe is not None:
        _check_recipe(plain, recipe)
    else:
        recipe = hosted_recipe(plain)
    if recipe is None:
        raise ArgumentError(
            f"a file stores weights, not code, and how to make this {type(plain).__name__} again "
            f"is not known; hand it over: save(model, folder, factory={type(plain).__name__}, "
            "arguments={...}), or make the model with continua.build(factory, ...)"
        )
    blocks = blocks_if_any(plain)
    check_grids((block.expansion.bases.values(), block.solver) for block in blocks.values())
    tensors = _without_shared_memory(unique_tensors(model))
    weights = save_tensors(tensors, metadata={"format": "pt"})
    config = {
        "format": FORMAT,
        "factory": {"name": recipe.name, "arguments": recipe.arguments},
        "blocks": {name: block_config(block) for name, block in blocks.items()},
        "weights": {
            "bytes": len(weights),
            "sha256": sha256(weights),
            "dtype": _float_dtypes(tensors),
        },
    }
    if isinstance(model, Elastic):
        config["elastic"] = {"sizes": encode(list(model.sizes), "Elastic")}
    return {WEIGHTS: weights, CONFIG: as_json(config)}


def _check_recipe(model: nn.Module, recipe: Recipe) -> None:
    """Refuse a factory that makes another model; bases and solvers may differ."""
    call = partial(recipe.factory, **decode(recipe.arguments))
    with torch.random.fork_rng(devices=[]):
        try:
            with torch.device("meta"):
                made = call()
        except Exception:  # it needs values
            made = call()
    if why := _difference(model, made):
        converted = any(isinstance(b, LayerBlock) for b in blocks_if_any(model).values())
        raise ArgumentError(
            f"{recipe.name}(**{recipe.arguments}) does not make this model: {why}; give save the "
            "factory and arguments that do"
            + (", such as a function that calls continua.convert" if converted else "")
        )
    if told := _other_settings(model, made):
        warnings.warn(
            f"the file does not hold the settings of modules, and {recipe.name} makes some others: "
            f"{told}",
            stacklevel=4,
        )


def _difference(model: nn.Module, made: nn.Module) -> str | None:
    """What of a model is not as in the model that its factory makes, if anything."""
    try:
        configs = {name: block_config(block) for name, block in blocks_if_any(model).items()}
        made = copied(made)  # a factory may return modules that are in use
        configure_blocks(made, configs, Path("the model"))
    except FileError as error:
        return str(error)
    own, other = unique_tensors(model), unique_tensors(made)
    for name in [*own, *other]:
        if name not in own or name not in other:
            return f"only {'the model' if name in own else 'what it makes'} has {name!r}"
        shapes = list(own[name].shape), list(other[name].shape)
        if shapes[0] != shapes[1]:
            return f"{name!r} has shape {shapes[0]} here and {shapes[1]} there"
    return None


def _other_settings(model: nn.Module, made: nn.Module) -> str:
    """The first setting of a module of torch that is not as the factory sets it, if any."""
    others = dict(made.named_modules())
    for name, module in model.named_modules():
        other = others.get(name)
        if type(module) is not type(other) or not type(module).__module__.startswith("torch.nn."):
            continue
        for setting in getattr(module, "__constants__", ()):
            own, new = getattr(module, setting, None), getattr(other, setting, None)
            if isinstance(own, SETTING) and isinstance(new, SETTING) and own != new:
                return f"{name!r} has {setting}={own!r} here and {new!r} there"
    return ""


def unique_tensors(model: nn.Module) -> dict[str, Tensor]:
    """The state of the model, a tied tensor under its first name only."""
    tensors: dict[int, tuple[str, Tensor]] = {}
    for name, value in model.state_dict(keep_vars=True).items():
        if not isinstance(value, Tensor):
            raise ArgumentError(f"the entry {name!r} of the model's state is not a tensor")
        tensors.setdefault(id(value), (name, value))
    return dict(tensors.values())


def _without_shared_memory(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors on the CPU; views of one storage become separate tensors."""
    separate: dict[str, Tensor] = {}
    addresses: set[int] = set()
    for name, value in tensors.items():
        value = value.detach().cpu().contiguous()
        separate[name] = value.clone() if value.data_ptr() in addresses else value
        addresses.add(value.data_ptr())
    return separate


def _float_dtypes(tensors: Mapping[str, Tensor]) -> str | dict[str, str] | None:
    """The dtype of the floating-point tensors, or of each of them if they differ."""
    dtypes = {
        name: str(value.dtype).removeprefix("torch.")
        for name, value in tensors.items()
        if value.is_floating_point()
    }
    return dtypes if len(set(dtypes.values())) > 1 else next(iter(dtypes.values()), None)
