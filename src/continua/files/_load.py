"""Models from files: everything in them is checked before memory is allocated."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from threading import get_ident
from typing import Any

import torch
from safetensors.torch import load as load_tensors
from torch import Tensor, nn
from torch.nn.modules import module as hooks
from torch.utils._pytree import tree_leaves

from continua._errors import ArgumentError, ContinuaError, FileError
from continua.field import listed
from continua.transform import Choice, Elastic, Recipe, set_recipe

from ._blocks import configure_blocks
from ._disk import MOST_BYTES, check_sum, entry, parse_json, read_bytes
from ._factory import FACTORIES, MOST_STEPS, Factory, decode, describe, find_factory
from ._hosted import hosted_factory
from ._save import CONFIG, FORMAT, WEIGHTS, unique_tensors

#: what a model may have been cast to
FLOATS = {
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "float32": torch.float32,
    "float64": torch.float64,
}
#: a factory may make tensors of so many times the bytes of the weights, and so many bytes more
RATIO, ROOM = 64, 2**28
MOST_SIZES = 64


def load(
    folder: str | os.PathLike[str],
    device: str | torch.device = "cpu",
    *,
    size: Choice | None = None,
    factory: Factory | None = None,
    trust: Sequence[str] = (),
    allow_nan: bool = False,
) -> nn.Module:
    """The model that `save` wrote, in evaluation mode.

    A file runs no code of its choosing: it can name the models of `continua.models` and layers of
    `torch.nn`. For a model of your own, hand over its factory, or trust its package. Sizes in the
    file are compared with its weights before memory is allocated.

    Args:
        folder: where it was written.
        device: where to put it.
        size: of an `Elastic`, as a plain model; None for what was saved.
        factory: called with the arguments in the file, whatever factory the file names. For a
            converted model of `transformers` this is its class, such as `BertModel`.
        trust: packages of which a file may name the `nn.Module` classes, and the functions that
            are annotated to return one. The file decides which of their modules is imported.
        allow_nan: whether weights may be NaN.

    Example:
        >>> import continua as ct
        >>> ct.load("model")  # doctest: +SKIP
        >>> ct.load("my_model", factory=MyNet)  # doctest: +SKIP
        >>> ct.load("my_model", trust=["my_package"])  # doctest: +SKIP
    """
    model = load_contents(Path(folder), {}, factory, trust, allow_nan)
    if size is not None:
        if not isinstance(model, Elastic):
            raise ArgumentError(
                f"{folder} holds a model of one size; continua.compress makes it smaller"
            )
        model = model.at(size)
    return model.to(device).eval()


def load_contents(
    folder: Path,
    contents: Mapping[str, bytes],
    factory: Factory | None = None,
    trust: Sequence[str] = (),
    allow_nan: bool = False,
) -> nn.Module:
    """The model in a folder of which some files have been read; `contents` has them by name."""
    path = folder / CONFIG
    config = _read_config(path, contents.get(CONFIG))
    tensors = _read_tensors(folder / WEIGHTS, contents.get(WEIGHTS), config, allow_nan)
    recipe, call, is_listed = _recipe(config, path, factory, trust)
    if is_listed:
        _check_numbers(call.keywords, max(MOST_STEPS, config["weights"]["bytes"]), path)
    prefix = "model." if "elastic" in config else ""
    if is_listed or recipe is None:  # first on the meta device, where nothing is allocated
        shell = _make(call, config, tensors, path, "meta")
        expected = {prefix + name: value for name, value in unique_tensors(shell).items()}
        inner = {name: value for name, value in tensors.items() if name.startswith(prefix)}
        _compare(expected, inner, config, folder)
    model = _make(call, config, tensors, path, "cpu")
    set_recipe(model, recipe)
    if "elastic" in config:
        model = _elastic(model, entry(config, "elastic", dict, path), path)
    _compare(unique_tensors(model), tensors, config, folder)
    own = model.state_dict(keep_vars=True)
    for name, value in tensors.items():
        own[name].data = value.to(own[name].device)
    return model.eval()


# -- what the files hold -----------------------------------------------------------------------


def _read_config(path: Path, content: bytes | None) -> dict[str, Any]:
    """The content of `config.json`, which is read unless it is given."""
    if content is None:
        if not path.exists():
            if path.parent.is_file():
                raise FileError(f"{path.parent} is a file; load takes the folder it is in")
            raise FileError(f"{path} does not exist; a saved model has {CONFIG} and {WEIGHTS}")
        content = read_bytes(path, MOST_BYTES)
    config = parse_json(content, str(path))
    version = config.get("format")
    if not isinstance(version, int):
        raise FileError(f"{path} is not the config of a continua model: it has no format number")
    if version > FORMAT:
        raise FileError(
            f"{path} has format {version}, newer than {FORMAT}, the newest this continua reads; "
            "upgrade continua"
        )
    return config


def _read_tensors(
    path: Path, content: bytes | None, config: Mapping[str, Any], allow_nan: bool
) -> dict[str, Tensor]:
    """The tensors of `model.safetensors`, which is read unless its content is given."""
    about = config.get("weights")
    if not isinstance(about, dict) or not isinstance(about.get("bytes"), int):
        raise FileError(f"{path.parent / CONFIG} does not say what {WEIGHTS} holds: it was changed")
    if content is None:
        if not path.exists():
            raise FileError(f"{path} does not exist, though {CONFIG} beside it does")
        content = read_bytes(path)
    if len(content) != about["bytes"]:
        raise FileError(
            f"{path} has {len(content):,} bytes where {CONFIG} says "
            f"{about['bytes']:,}: it was cut or belongs to another model"
        )
    check_sum(path, content, about.get("sha256"), CONFIG)
    try:
        tensors = load_tensors(content)
    except Exception as error:  # of safetensors, or of torch for a dtype that it lacks
        raise FileError(f"{path} is not a safetensors file: {error}") from error
    for name, value in tensors.items():
        if not allow_nan and value.is_floating_point() and bool(value.isnan().any()):
            raise FileError(
                f"{path}: {name!r} holds NaN; continua.load(folder, allow_nan=True) loads it all "
                "the same"
            )
    return tensors


def _compare(
    expected: Mapping[str, Tensor],
    tensors: Mapping[str, Tensor],
    config: Mapping[str, Any],
    folder: Path,
) -> None:
    """Refuse weights of another name, shape or dtype than the model's."""
    if tensors.keys() != expected.keys():
        missing, unknown = expected.keys() - tensors.keys(), tensors.keys() - expected.keys()
        what = f"lacks {listed(sorted(missing))}" if missing else f"has {listed(sorted(unknown))}"
        raise FileError(f"{folder / WEIGHTS} {what}, unlike the model that its config describes")
    saved_dtype = config["weights"].get("dtype")
    for name, value in sorted(tensors.items()):
        own = expected[name]
        dtype = own.dtype
        if own.is_floating_point() and saved_dtype is not None:
            word = saved_dtype.get(name) if isinstance(saved_dtype, dict) else saved_dtype
            if word not in list(FLOATS):
                raise FileError(f"{folder / CONFIG} has the dtype {word!r:.60} for {name!r:.99}")
            dtype = FLOATS[word]
        for what, has, needs in (
            ("shape", list(value.shape), list(own.shape)),
            ("dtype", value.dtype, dtype),
        ):
            if has != needs:
                raise FileError(
                    f"{folder / WEIGHTS}: {name!r} has {what} {has}, the model needs {needs}"
                )


# -- the model that they describe --------------------------------------------------------------


def _recipe(
    config: Mapping[str, Any], path: Path, factory: Factory | None, trust: Sequence[str]
) -> tuple[Recipe | None, partial[nn.Module], bool]:
    """The recipe of the model, the call that makes it, and whether files may name its factory.

    A converted model has no recipe: its own config describes it.
    """
    saved = entry(config, "factory", dict, path)
    name = entry(saved, "name", str, path)
    arguments = entry(saved, "arguments", dict, path)
    try:
        found = find_factory(name, trust) if factory is None else factory
        arguments = decode(arguments)
        hosted = hosted_factory(found)
        recipe = describe(found, arguments) if hosted is None else None
    except ContinuaError as error:
        raise FileError(f"{path}: {error}") from error
    return recipe, partial(hosted or found, **arguments), factory is None and name in FACTORIES


def _check_numbers(arguments: Any, most: int, path: Path) -> None:
    """Refuse a number in the arguments that is larger than any dimension of the weights can be."""
    for value in tree_leaves(arguments):
        if isinstance(value, int) and abs(value) > most:
            raise FileError(f"{path} has {value:,} in its arguments, more than {WEIGHTS} has bytes")


def _make(
    call: partial[nn.Module],
    config: Mapping[str, Any],
    tensors: Mapping[str, Tensor],
    path: Path,
    device: str,
) -> nn.Module:
    """The model as its factory makes it, with the bases and solvers that the file names."""
    size = sum(value.nbytes for value in tensors.values())
    name = config["factory"]["name"]
    try:
        with torch.device(device), _limit(16 * len(tensors) + 1000, RATIO * size + ROOM):
            model = call()
    except Exception as error:
        text = f"{name}(**{call.keywords})"
        raise FileError(f"{text:.400} in {path} fails: {error}") from error
    if not isinstance(model, nn.Module):
        raise FileError(f"{name} in {path} makes {type(model).__name__}, not an nn.Module")
    own = (*model.parameters(), *model.buffers())
    if device == "cpu" and any(value.is_meta for value in own):
        raise FileError(f"{name} in {path} makes tensors without values")
    total = sum(value.nbytes for value in own)
    if total > RATIO * size + ROOM:
        raise FileError(
            f"{path} describes a model of {total:,} bytes, far more than the {size:,} in {WEIGHTS}"
        )
    try:
        with torch.device(device):
            configure_blocks(model, entry(config, "blocks", dict, path), path)
    except FileError:
        raise
    except (ContinuaError, RuntimeError) as error:  # or there is not enough memory
        raise FileError(f"{path} has a block that cannot be: {error}") from error
    return model


def _elastic(model: nn.Module, config: dict[str, Any], path: Path) -> Elastic:
    """The elastic model with the sizes that the file names."""
    try:
        sizes = decode(entry(config, "sizes", list, path))
        if len(sizes) > MOST_SIZES:
            raise ArgumentError(f"there are {len(sizes):,}, and a file has at most {MOST_SIZES}")
        return Elastic(model, sizes)
    except (KeyError, TypeError, AttributeError, ContinuaError) as error:
        raise FileError(f"{path} has sizes that cannot be: {error}") from error


@contextmanager
def _limit(tensors: int, total: int) -> Iterator[None]:
    """Refuse to register more tensors in this thread, or more bytes of them, than this."""
    thread, left = get_ident(), [tensors, total]

    def count(module: nn.Module, name: str, value: Tensor | None) -> None:
        if get_ident() == thread and value is not None:
            left[0] -= 1
            left[1] -= value.nbytes
            if min(left) < 0:
                raise FileError(f"it makes far more than {WEIGHTS} holds")

    handles = (
        hooks.register_module_parameter_registration_hook(count),
        hooks.register_module_buffer_registration_hook(count),
    )
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
