"""Models as files: safetensors and JSON, never pickle."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor, nn

from continua._errors import ArgumentError, ContinuaError, FileError
from continua._values import from_config
from continua.basis import Basis
from continua.block import ODEBlock
from continua.field import listed, tensor
from continua.gradient import Gradient
from continua.solve import Solver
from continua.transform import Choice, Elastic, blocks_if_any, recipe_of, set_recipe

from ._elastic import at_size, elastic_config, elastic_from_config
from ._factory import Factory, decode, describe, import_factory
from ._hosted import as_factory, hosted_recipe

FORMAT, WEIGHTS, CONFIG = 1, "model.safetensors", "config.json"


def build(factory: Factory, /, **arguments: Any) -> nn.Module:
    """Call a factory and store the call with the model, so that the model can be saved.

    Args:
        factory: an importable `nn.Module` class, or an importable function whose return
            annotation is one.
        arguments: of JSON values, bases, solvers and gradients.

    Example:
        >>> import continua as ct
        >>> ct.build(nn.Linear, in_features=2, out_features=1)
        Linear(in_features=2, out_features=1, bias=True)
    """
    recipe = describe(factory, arguments)
    model = factory(**arguments)
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
            `Elastic`, but not a function that it was given as `teach`. A converted model of
            `transformers` needs no factory: its own config is stored.
        folder: made if it does not exist.
        factory: what makes a model of this kind, if `build` did not record it.
        arguments: what to call the factory with.

    Returns:
        The folder.
    """
    plain = model.model if isinstance(model, Elastic) else model
    recipe = recipe_of(plain) or hosted_recipe(plain)
    if factory is not None:
        recipe = describe(factory, dict(arguments or {}))
    if recipe is None:
        raise ArgumentError(
            f"how to make this {type(plain).__name__} again is not known; make it with "
            "continua.build(factory, ...), or give save the factory and its arguments"
        )
    weights = save_tensors(_unique_tensors(model), metadata={"format": "pt"})
    config = {
        "format": FORMAT,
        "factory": recipe,
        "blocks": {name: _block_config(block) for name, block in blocks_if_any(plain).items()},
        "weights": {"bytes": len(weights), "sha256": hashlib.sha256(weights).hexdigest()},
    }
    if isinstance(model, Elastic):
        config["elastic"] = elastic_config(model)
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        written = (json.dumps(config, indent=1) + "\n").encode()
        write_files(folder, {WEIGHTS: weights, CONFIG: written})
    except OSError as error:
        raise FileError(f"cannot write to {folder}: {error.strerror or error}") from error
    return folder


def load(
    folder: str | os.PathLike[str],
    device: str | torch.device = "cpu",
    *,
    size: Choice | None = None,
    factory: Factory | None = None,
) -> nn.Module:
    """The model that `save` wrote, in evaluation mode.

    Without a factory, the one named in the file is imported and called: load only what you trust.

    Args:
        folder: where it was written.
        device: where to put it.
        factory: called instead of the one that the file names, with the arguments in the file. For
            a converted model of `transformers` this is its class, such as `BertModel`.
        size: of an `Elastic`, as a plain model; None for what was saved.
    """
    folder = Path(folder)
    config = _read_config(folder / CONFIG)
    tensors = _read_tensors(folder / WEIGHTS, config)
    try:
        name, handed = config["factory"]["name"], factory
        factory = as_factory(import_factory(name) if handed is None else handed)
        arguments = decode(config["factory"]["arguments"])
        block_configs = config["blocks"]
    except (KeyError, TypeError) as error:
        raise FileError(f"{folder / CONFIG} lacks the entry {error}") from error
    except ContinuaError as error:
        raise FileError(f"{folder / CONFIG}: {error}") from error
    try:
        model = factory(**arguments)
    except Exception as error:
        raise FileError(f"{name}(**{arguments}) in {folder / CONFIG} fails: {error}") from error
    if handed is not None:
        set_recipe(model, config["factory"])
    elif hosted_recipe(model) is None:
        set_recipe(model, describe(factory, arguments))
    _match_blocks(model, block_configs, folder / CONFIG)
    if "elastic" in config:
        model = elastic_from_config(model, config["elastic"], folder / CONFIG)
    _fill(model, tensors, folder / WEIGHTS)
    if size is not None:
        model = at_size(model, size, folder)
    return model.to(device).eval()


def _block_config(block: ODEBlock) -> dict[str, Any]:
    return {
        "solver": block.solver.config(),
        "gradient": block.gradient.config(),
        "span": list(block.span),
        "bases": {name: basis.config() for name, basis in block.expansion.bases.items()},
    }


def _match_blocks(model: nn.Module, configs: Mapping[str, Any], path: Path) -> None:
    """Give the blocks of a fresh model the bases and solvers that the file names."""
    found = blocks_if_any(model)
    if found.keys() != configs.keys():
        raise FileError(
            f"{path} describes the blocks {listed(configs)}, but its factory makes {listed(found)}"
        )
    for name, block in found.items():
        try:
            bases = {k: from_config(Basis, c) for k, c in configs[name]["bases"].items()}
            solver = from_config(Solver, configs[name]["solver"])
            gradient = from_config(Gradient, configs[name]["gradient"])
            span = tuple(configs[name]["span"])
        except (KeyError, TypeError, AttributeError, ContinuaError) as error:
            raise FileError(f"{path}, block {name!r}: {error}") from error
        if bases.keys() != block.expansion.bases.keys() or span != block.span:
            raise FileError(
                f"{path}, block {name!r}: tensors or span differ from what the factory makes"
            )
        old = {key: tensor(block.field, key) for key in bases}
        stacks = {k: (b, old[k].new_zeros(b.size, *old[k].shape[1:])) for k, b in bases.items()}
        block.rebase(stacks, solver)
        block.gradient = gradient


def _unique_tensors(model: nn.Module) -> dict[str, Tensor]:
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


def _fill(model: nn.Module, tensors: Mapping[str, Tensor], path: Path) -> None:
    expected = _unique_tensors(model)
    if tensors.keys() != expected.keys():
        missing, unknown = expected.keys() - tensors.keys(), tensors.keys() - expected.keys()
        what = f"lacks {listed(sorted(missing))}" if missing else f"has {listed(sorted(unknown))}"
        raise FileError(f"{path} {what}, unlike the model that its config describes")
    own = model.state_dict(keep_vars=True)
    for name, value in tensors.items():
        if value.shape != expected[name].shape:
            raise FileError(
                f"{path}: {name!r} has shape {list(value.shape)}, "
                f"the model needs {list(expected[name].shape)}"
            )
        own[name].data = value.to(own[name].device)


# -- the files: written completely or not at all, checked when read


def write_files(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write all files under temporary names, then rename them."""
    temporary: list[tuple[str, Path]] = []
    try:
        for name, content in files.items():
            handle, path = tempfile.mkstemp(dir=folder, prefix=f".{name}-")
            temporary.append((path, folder / name))
            with os.fdopen(handle, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.chmod(path, 0o644)
        for path, place in temporary:
            os.replace(path, place)
    finally:
        for path, _ in temporary:
            Path(path).unlink(missing_ok=True)


def _read_config(path: Path) -> dict[str, Any]:
    """The content of `config.json`."""
    try:
        config = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise FileError(
            f"{path} does not exist; a saved model has {CONFIG} and {WEIGHTS}"
        ) from None
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise FileError(f"{path} cannot be read: {error}") from error
    version = config.get("format") if isinstance(config, dict) else None
    if not isinstance(version, int):
        raise FileError(f"{path} is not the config of a continua model: it has no format number")
    if version > FORMAT:
        raise FileError(
            f"{path} has format {version}, newer than {FORMAT}, the newest this continua reads; "
            "upgrade continua"
        )
    return config  # type: ignore[no-any-return]


def _read_tensors(path: Path, config: Mapping[str, Any]) -> dict[str, Tensor]:
    """The tensors of `model.safetensors`, checked against the size and hash in the config."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise FileError(f"{path} does not exist, though {CONFIG} beside it does") from None
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error}") from error
    expected = config.get("weights")
    if not isinstance(expected, dict) or not isinstance(expected.get("bytes"), int):
        raise FileError(f"{path.parent / CONFIG} does not say what {WEIGHTS} holds: it was changed")
    if len(content) != expected.get("bytes"):
        raise FileError(
            f"{path} has {len(content):,} bytes where {CONFIG} says "
            f"{expected['bytes']:,}: it was cut or belongs to another model"
        )
    if hashlib.sha256(content).hexdigest() != expected.get("sha256"):
        raise FileError(f"{path} does not have the checksum in {CONFIG}: it was changed or damaged")
    try:
        return load_tensors(content)
    except SafetensorError as error:
        raise FileError(f"{path} is not a safetensors file: {error}") from error
