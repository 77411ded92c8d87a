"""Models as files: safetensors and JSON, never pickle."""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import inspect
import json
import os
import tempfile
import typing
from collections.abc import Callable, Mapping
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
from continua.transform import RECIPE, Choice, Elastic, blocks

from ._elastic import at_size, elastic_config, elastic_from_config
from ._json import decode, encode

FORMAT = 1
WEIGHTS = "model.safetensors"
CONFIG = "config.json"

Factory = Callable[..., nn.Module]


def build(factory: Factory, /, **arguments: Any) -> nn.Module:
    """Call a factory and remember how, so that the model can be saved.

    Args:
        factory: an importable `nn.Module` class, or an importable function whose return
            annotation is one.
        arguments: of JSON values, bases, solvers and gradients.

    Example:
        >>> import continua as ct
        >>> ct.build(nn.Linear, in_features=2, out_features=1)
        Linear(in_features=2, out_features=1, bias=True)
    """
    recipe = _recipe(factory, arguments)
    model = factory(**arguments)
    _remember(model, recipe)
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
            `compress` keep what those remember. Of an `Elastic` one file holds all
            sizes, but not a function that it was given as `teach`.
        folder: made if it does not exist.
        factory: what makes a model of this kind, if `build` did not record it.
        arguments: what to call the factory with.

    Returns:
        The folder.
    """
    plain = model.model if isinstance(model, Elastic) else model
    if factory is not None:
        recipe = _recipe(factory, dict(arguments or {}))
    else:
        if not hasattr(plain, RECIPE):
            raise ArgumentError(
                f"how to make this {type(plain).__name__} again is not known; make it with "
                "continua.build(factory, ...), or give save the factory and its arguments"
            )
        recipe = getattr(plain, RECIPE)
    weights = save_tensors(_unique_tensors(model), metadata={"format": "pt"})
    config = {
        "format": FORMAT,
        "factory": recipe,
        "blocks": {name: _block_config(block) for name, block in _blocks(plain).items()},
        "weights": {"bytes": len(weights), "sha256": hashlib.sha256(weights).hexdigest()},
    }
    if isinstance(model, Elastic):
        config["elastic"] = elastic_config(model)
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_files(
            folder, {WEIGHTS: weights, CONFIG: (json.dumps(config, indent=1) + "\n").encode()}
        )
    except OSError as error:
        raise FileError(f"cannot write to {folder}: {error.strerror or error}") from error
    return folder


def load(
    folder: str | os.PathLike[str],
    device: str | torch.device = "cpu",
    *,
    size: Choice | None = None,
) -> nn.Module:
    """The model that `save` wrote, in evaluation mode.

    The factory named in the file is imported and called: load only what you trust.

    Args:
        folder: where it was written.
        device: where to put it.
        size: of an `Elastic`, as a plain model; None for what was saved.
    """
    folder = Path(folder)
    config = _read_config(folder / CONFIG)
    tensors = _read_tensors(folder / WEIGHTS, config)
    try:
        factory = _import_factory(config["factory"]["name"])
        arguments = decode(config["factory"]["arguments"])
        block_configs = config["blocks"]
    except (KeyError, TypeError) as error:
        raise FileError(f"{folder / CONFIG} lacks the entry {error}") from error
    except ContinuaError as error:
        raise FileError(f"{folder / CONFIG}: {error}") from error
    try:
        model = factory(**arguments)
    except Exception as error:
        name = config["factory"]["name"]
        raise FileError(f"{name}(**{arguments}) in {folder / CONFIG} fails: {error}") from error
    _remember(model, _recipe(factory, arguments))
    _match_blocks(model, block_configs, folder / CONFIG)
    if "elastic" in config:
        model = elastic_from_config(model, config["elastic"], folder / CONFIG)
    _fill(model, tensors, folder / WEIGHTS)
    if size is not None:
        model = at_size(model, size, folder)
    return model.to(device).eval()


# -- how to make the model again ---------------------------------------------------------------


def _remember(model: nn.Module, recipe: dict[str, Any]) -> None:
    setattr(model, RECIPE, recipe)


def _recipe(factory: Factory, arguments: dict[str, Any]) -> dict[str, Any]:
    name = f"{getattr(factory, '__module__', '?')}:{getattr(factory, '__qualname__', '?')}"
    if name.startswith("__main__:") or "<" in name:
        raise ArgumentError(
            f"{name} cannot be imported from elsewhere, so a file could not name it; "
            "move it to the top level of a module"
        )
    if _import_factory(name) is not factory:
        raise ArgumentError(f"{name} is now another object than the factory given")
    signature = inspect.signature(factory)
    try:
        signature.bind(**arguments)
    except TypeError as error:
        raise ArgumentError(f"{name} cannot be called so: {error}") from None
    return {
        "name": name,
        "arguments": {**_defaults(signature), **encode(arguments, name)},
    }


def _defaults(signature: inspect.Signature) -> dict[str, Any]:
    """The defaults that JSON can hold, so that a file means the same when a default changes."""
    encoded = {}
    for parameter in signature.parameters.values():
        by_name = parameter.kind is not parameter.POSITIONAL_ONLY
        if by_name and parameter.default is not parameter.empty:
            with contextlib.suppress(ArgumentError):
                encoded[parameter.name] = encode(parameter.default, parameter.name)
    return encoded


def _import_factory(name: str) -> Factory:
    module_name, _, qualified = str(name).partition(":")
    try:
        found: Any = importlib.import_module(module_name)
        for part in qualified.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError) as error:
        raise ArgumentError(
            f"the factory {name!r} cannot be imported: {error}; Python looks for it in the folders "
            "of PYTHONPATH"
        ) from error
    # A file must not be able to call just any function of the installed packages.
    made = found if inspect.isclass(found) else _return_annotation(found)
    if not (inspect.isclass(made) and issubclass(made, nn.Module)):
        raise ArgumentError(
            f"the factory {name!r} is neither an nn.Module class nor a function annotated to "
            "return one"
        )
    return found  # type: ignore[no-any-return]


def _return_annotation(function: Any) -> Any:
    try:
        return typing.get_type_hints(function).get("return")
    except Exception:
        return None


# -- the blocks --------------------------------------------------------------------------------


def _blocks(model: nn.Module) -> dict[str, ODEBlock]:
    try:
        return blocks(model)
    except ArgumentError:
        return {}


def _block_config(block: ODEBlock) -> dict[str, Any]:
    return {
        "solver": block.solver.config(),
        "gradient": block.gradient.config(),
        "span": list(block.span),
        "bases": {name: basis.config() for name, basis in block.expansion.bases.items()},
    }


def _match_blocks(model: nn.Module, configs: Mapping[str, Any], path: Path) -> None:
    """Give the blocks of a fresh model the bases and solvers that the file names."""
    found = _blocks(model)
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
        stacks = {
            key: (basis, tensor(block.field, key).new_zeros(basis.size, *_shape(block, key)))
            for key, basis in bases.items()
        }
        block.rebase(stacks, solver)
        block.gradient = gradient


def _shape(block: ODEBlock, name: str) -> tuple[int, ...]:
    return tuple(tensor(block.field, name).shape[1:])


# -- the tensors -------------------------------------------------------------------------------


def _unique_tensors(model: nn.Module) -> dict[str, Tensor]:
    """The state of the model, a tied tensor under its first name only."""
    tensors: dict[str, Tensor] = {}
    seen: set[tuple[int, torch.Size]] = set()
    for name, value in model.state_dict().items():
        if not isinstance(value, Tensor):
            raise ArgumentError(f"the entry {name!r} of the model's state is not a tensor")
        key = (value.data_ptr(), value.shape)
        if value.numel() and key in seen:
            continue
        seen.add(key)
        tensors[name] = value.detach().cpu().contiguous()
    return tensors


def _fill(model: nn.Module, tensors: Mapping[str, Tensor], path: Path) -> None:
    expected = _unique_tensors(model)
    missing = expected.keys() - tensors.keys()
    unknown = tensors.keys() - expected.keys()
    if missing or unknown:
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


# -- bytes on disk -----------------------------------------------------------------------------


def write_files(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write all files beside their places, then move each into its place."""
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
