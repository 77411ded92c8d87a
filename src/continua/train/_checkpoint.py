"""Checkpoints: everything that a run needs to resume to the same bits."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor, nn

from continua._errors import ArgumentError, FileError
from continua.files import (
    CHECKSUMS,
    as_json,
    check_sum,
    checksums,
    entry,
    load_contents,
    model_files,
    parse_json,
    read_bytes,
    read_checked,
    read_json,
    write_files,
    write_json,
)  # fmt: skip
from continua.transform import Recipe

from ._files import make_folder
from ._random import python_generators, set_generators, torch_generators

FORMAT = 1
FOLDER = "checkpoints"
#: how many of the last checkpoints to keep
KEPT = 2
INDEX = "index.json"
STATE = "training.json"
TENSORS = "training.safetensors"
FILES = ("config.json", "model.safetensors", STATE, TENSORS)
#: prefixes of the tensors in `training.safetensors`
OPTIMIZER, RANDOM = "optimizer.", "random."
#: what `restore` raises for a state that no training wrote
DAMAGED = (LookupError, ValueError, TypeError, AttributeError, RuntimeError, OverflowError)


@dataclass
class Position:
    """Where a training is.

    Attributes:
        epoch: the epoch that runs, counted from 0.
        batch: how many of its batches are done.
        step: how many batches are done in all.
        seconds: how long it has taken.
        best: the best measure so far; None before the first evaluation.
        stale: evaluations since then.
        sums: of the measures on the training batches of this epoch.
        counts: the number of values in each sum.
        finished: whether the training is at its end.
    """

    epoch: int = 0
    batch: int = 0
    step: int = 0
    seconds: float = 0.0
    best: float | None = None
    stale: int = 0
    sums: dict[str, float] = field(default_factory=dict)
    counts: dict[str, float] = field(default_factory=dict)
    finished: bool = False


class Checkpoints:
    """The checkpoints of one run, each a folder that is complete before it gets its name.

    An index names the last ones and the best; others are removed.

    Args:
        run: the folder of the run.
    """

    def __init__(self, run: Path):
        self.folder = run / FOLDER

    def index(self) -> dict[str, Any]:
        """The names of the last checkpoints, newest first, and of the best."""
        path = self.folder / INDEX
        if not path.exists():
            return self._new_index()
        remedy = "remove it, and it is made anew from the checkpoints beside it"
        try:
            index = read_json(path)
        except FileError as error:
            raise FileError(f"{error}; {remedy}") from error
        last, best = index.get("last"), index.get("best")
        if not (isinstance(last, list) and all(map(_is_name, last))) or not (
            best is None or _is_name(best)
        ):
            raise FileError(f"{path} is not an index of checkpoints; {remedy}")
        return {"last": last, "best": best}

    def last(self) -> Path | None:
        """The newest checkpoint that still exists."""
        index = self.index()
        return next(self._existing([*index["last"], index["best"]]), None)

    def best(self) -> Path | None:
        """The best checkpoint; the newest if none was ever better than another."""
        return next(self._existing([self.index()["best"]]), None) or self.last()

    def has_best(self) -> bool:
        """Whether the best checkpoint still exists."""
        return any(self._existing([self.index()["best"]]))

    def write(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        position: Position,
        scaler: dict[str, Any] | None,
        best: bool,
        about: dict[str, Any] | None = None,
    ) -> Path:
        """Add a checkpoint, and remove those that are no longer needed.

        Args:
            model: to be saved.
            optimizer: of its parameters.
            position: where the training is.
            scaler: the state of mixed precision's gradient scaler, if it has one.
            best: whether it is the best so far.
            about: what else to save with it, ready for JSON.
        """
        make_folder(self.folder)
        index = self.index()
        name = f"step-{position.step:08d}"
        others = [path.name for path in self._existing(index["last"]) if path.name != name]
        index["last"] = [name, *others][:KEPT]
        if best:
            index["best"] = name
        place = self.folder / name
        temporary, old = (self.folder / f".{name}-{kind}-{os.getpid()}" for kind in ("new", "old"))
        files = model_files(model)  # before the generators, which its check may draw from
        tensors, numbers = _split_state(optimizer)
        tensors |= {RANDOM + device: value for device, value in torch_generators().items()}
        state = {
            "format": FORMAT,
            "position": asdict(position),
            "best": index["best"],
            "about": about or {},
            "optimizer": numbers,
            "scaler": scaler,
            "python": python_generators(),
        }
        files |= {TENSORS: save_tensors(tensors), STATE: as_json(state)}
        try:
            self.clean()
            write_files(temporary, files | {CHECKSUMS: checksums(files)})
            if place.exists():
                os.replace(place, old)
            os.replace(temporary, place)
            write_json(self.folder / INDEX, index)
        except (OSError, FileError) as error:
            why = getattr(error.__cause__ or error, "strerror", None) or error
            raise FileError(
                f"cannot write the checkpoint {place}: {why}; the one before it is untouched"
            ) from error
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
            shutil.rmtree(old, ignore_errors=True)
        self._tidy(index)
        return place

    def forget_best(self) -> None:
        """Nothing is the best any more, because models have another size from here on."""
        write_json(self.folder / INDEX, self.index() | {"best": None})

    def clean(self) -> None:
        """Remove what a run that was killed has left."""
        for stale in self.folder.glob(".step-*"):
            shutil.rmtree(stale, ignore_errors=True)
        for stale in self.folder.glob(f".{INDEX}-*"):
            stale.unlink(missing_ok=True)
        self._tidy(self.index())

    def _new_index(self) -> dict[str, Any]:
        """An index of the checkpoints that exist, of which the newest knows the best."""
        paths = sorted(self.folder.glob("step-*"), reverse=True)
        names = [path.name for path in paths if _is_name(path.name)]
        best = None
        if names:
            # A damaged checkpoint raises its error when it is read.
            with contextlib.suppress(FileError):
                best = read_json(self.folder / names[0] / STATE).get("best")
        return {"last": names, "best": best if _is_name(best) else None}

    def _existing(self, names: Iterable[str | None]) -> Iterator[Path]:
        paths = (self.folder / name for name in names if name is not None)
        return (path for path in paths if path.is_dir())

    def _tidy(self, index: dict[str, Any]) -> None:
        for folder in self.folder.glob("step-*"):
            if folder.name not in (*index["last"], index["best"]):
                shutil.rmtree(folder, ignore_errors=True)


def _is_name(value: Any) -> bool:
    """Whether this can be the name of a checkpoint."""
    return isinstance(value, str) and re.fullmatch(r"step-\d+", value) is not None


def load_checkpoint(
    folder: Path,
    *,
    factory: Callable[..., nn.Module] | None = None,
    trust: Sequence[str] = (),
    allow_nan: bool = False,
) -> nn.Module:
    """The model of a checkpoint, as `continua.load` gives it, if its files have their checksums."""
    return load_contents(folder, _read_files(folder), factory, trust, allow_nan)


def _read_files(folder: Path) -> dict[str, bytes]:
    """The content of the files of a checkpoint, each with its checksum."""
    if (folder / CHECKSUMS).exists():
        return read_checked(folder, FILES)
    contents = {name: read_bytes(folder / name) for name in FILES}  # of continua 0.1
    digest = parse_json(contents[STATE], str(folder / STATE)).get("sha256")
    check_sum(folder / TENSORS, contents[TENSORS], digest, STATE)
    return contents


def read(
    folder: Path, recipe: Recipe
) -> tuple[nn.Module, Position, dict[str, Any], dict[str, Tensor]]:
    """A checkpoint: the model, which the recipe makes, the position, and what `restore` needs."""
    remedy = f"move {folder} elsewhere to go on from the checkpoint before it"
    path = folder / STATE
    try:
        if (version := entry(read_json(path), "format", int, path)) > FORMAT:
            raise FileError(
                f"{path} has format {version}, newer than {FORMAT}, the newest this continua "
                "reads; upgrade continua"
            )
        contents = _read_files(folder)
        state = parse_json(contents[STATE], str(path))
        config = parse_json(contents["config.json"], str(folder / "config.json"))
        name = entry(entry(config, "factory", dict, folder), "name", str, folder)
        if name != recipe.name:
            raise ArgumentError(
                f"{folder.parents[1]} holds a training of {name}, not of {recipe.name}; choose "
                "another folder"
            )
        model = load_contents(folder, contents, recipe.factory, allow_nan=True)
        for name in ("optimizer", "python"):
            entry(state, name, dict, path)
        entry(entry(state, "about", dict, path), "training", dict, path)
        position = _position(entry(state, "position", dict, path), path)
        tensors = load_tensors(contents[TENSORS])
    except SafetensorError as error:
        raise FileError(f"{folder / TENSORS} is no safetensors file ({error}); {remedy}") from error
    except FileError as error:
        raise FileError(f"{error}; {remedy}") from error
    # The last bits of a matrix product depend on the alignment of its operands: what was read from
    # a file is not aligned as what torch allocates.
    with torch.no_grad():
        for tensor in (*model.parameters(), *model.buffers()):
            tensor.data = tensor.data.clone()
    return model, position, state, tensors


def _position(config: dict[str, Any], path: Path) -> Position:
    kinds: dict[str, Any] = dict.fromkeys(("epoch", "batch", "step", "stale"), int)
    kinds |= {"seconds": (int, float), "best": (int, float, type(None)), "finished": bool}
    kinds |= {"sums": dict, "counts": dict}
    values = {name: entry(config, name, kind, path) for name, kind in kinds.items()}
    for name, kind in kinds.items():
        if kind is int and values[name] < 0:
            raise FileError(f"{path} has {name}={values[name]}, which is below 0")
    return Position(**values)


def restore(
    optimizer: torch.optim.Optimizer, state: dict[str, Any], tensors: dict[str, Tensor]
) -> None:
    """Restore an optimizer and all random generators."""
    numbers = state["optimizer"]
    values: dict[int, dict[str, Any]] = {int(i): dict(v) for i, v in numbers["state"].items()}
    for name, value in _with_prefix(tensors, OPTIMIZER).items():
        index, _, key = name.partition(".")
        values.setdefault(int(index), {})[key] = value
    # The settings are those of the training, not of the file.
    groups = optimizer.state_dict()["param_groups"]
    if [g["params"] for g in numbers["param_groups"]] != [g["params"] for g in groups]:
        raise ValueError("its optimizer has other parameters")
    optimizer.load_state_dict({"state": values, "param_groups": groups})
    for parameter, own in optimizer.state.items():
        for key, value in own.items():
            if isinstance(value, Tensor) and value.shape != parameter.shape and value.numel() != 1:
                raise ValueError(f"{key!r} of the optimizer has shape {list(value.shape)}")
            if isinstance(value, Tensor) and value.shape == parameter.shape:
                # In the layout of its parameter, as the optimizer makes it.
                own[key] = torch.empty_like(parameter, dtype=value.dtype).copy_(value)
    set_generators(_with_prefix(tensors, RANDOM), state["python"])


def _with_prefix(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}


def _split_state(optimizer: torch.optim.Optimizer) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The state of an optimizer: tensors by name, and everything else for JSON."""
    whole = optimizer.state_dict()
    tensors: dict[str, Tensor] = {}
    numbers: dict[str, dict[str, Any]] = {}
    for index, values in whole["state"].items():
        for key, value in values.items():
            if isinstance(value, Tensor):
                tensors[f"{OPTIMIZER}{index}.{key}"] = value.detach().cpu().contiguous()
            else:
                numbers.setdefault(str(index), {})[key] = value
    return tensors, {"state": numbers, "param_groups": whole["param_groups"]}
