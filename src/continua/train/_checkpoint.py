"""Checkpoints: everything that a run needs to go on as if it had not stopped."""

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
    parse_json,
    read_bytes,
    read_checked,
    read_json,
    save,
    write_files,
    write_json,
)  # fmt: skip
from continua.transform import Recipe

from ._files import make_folder
from ._random import python_generators, set_generators, torch_generators

FORMAT = 1
FOLDER = "checkpoints"
#: how many of the last checkpoints are kept
KEPT = 2
INDEX = "index.json"
STATE = "training.json"
TENSORS = "training.safetensors"
FILES = ("config.json", "model.safetensors", STATE, TENSORS)
NAME = re.compile(r"step-\d+")
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
        sums: of what was measured on training batches of this epoch.
        counts: that the sums are over.
        finished: whether it is at its end.
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
    """The checkpoints of one run, each a folder that is whole before it gets its name.

    An index names the last ones and the best; what it does not name is removed.

    Args:
        run: the folder of the run.
    """

    def __init__(self, run: Path):
        self.folder = run / FOLDER

    def index(self) -> dict[str, Any]:
        """The names of the last checkpoints, newest first, and of the best."""
        path = self.folder / INDEX
        if not path.exists():
            return self._found()
        remedy = "remove it, and it is made anew from the checkpoints beside it"
        try:
            index = read_json(path)
        except FileError as error:
            raise FileError(f"{error}; {remedy}") from error
        last, best = index.get("last"), index.get("best")
        names = [*last, *([] if best is None else [best])] if isinstance(last, list) else [None]
        if not all(isinstance(name, str) and NAME.fullmatch(name) for name in names):
            raise FileError(f"{path} is not an index of checkpoints; {remedy}")
        return {"last": last, "best": best}

    def last(self) -> Path | None:
        """The newest checkpoint that is still there."""
        index = self.index()
        return next(self._there([*index["last"], index["best"]]), None)

    def best(self) -> Path | None:
        """The best one; the newest if none was ever better than another."""
        return next(self._there([self.index()["best"]]), None) or self.last()

    def has_best(self) -> bool:
        """Whether the one that was best is still there."""
        return next(self._there([self.index()["best"]]), None) is not None

    def write(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        position: Position,
        scaler: dict[str, Any] | None,
        best: bool,
        about: dict[str, Any] | None = None,
    ) -> Path:
        """Add a checkpoint, and remove what is no longer needed.

        Args:
            model: to be saved.
            optimizer: of its parameters.
            position: where the training is.
            scaler: the state of mixed precision's gradient scaler, if it has one.
            best: whether it is the best so far.
            about: what else to keep with it, ready for JSON.
        """
        make_folder(self.folder)
        index = self.index()
        name = f"step-{position.step:08d}"
        index["last"] = [name, *(p.name for p in self._there(index["last"]) if p.name != name)]
        index["last"] = index["last"][:KEPT]
        if best:
            index["best"] = name
        place = self.folder / name
        temporary, old = (self.folder / f".{name}-{kind}-{os.getpid()}" for kind in ("new", "old"))
        try:
            self.clean()
            save(model, temporary)
            tensors, numbers = _packed(optimizer)
            tensors |= {f"random.{k}": v for k, v in torch_generators().items()}
            state = {
                "format": FORMAT,
                "position": asdict(position),
                "best": index["best"],
                "about": about or {},
                "optimizer": numbers,
                "scaler": scaler,
                "python": python_generators(),
            }
            files = {TENSORS: save_tensors(tensors), STATE: as_json(state)}
            saved = {path.name: path.read_bytes() for path in temporary.iterdir()}
            write_files(temporary, files | {CHECKSUMS: checksums(files | saved)})
            if place.exists():
                os.replace(place, old)
            os.replace(temporary, place)
            write_json(self.folder / INDEX, index)
        except (OSError, FileError) as error:
            cause = error if isinstance(error, OSError) else error.__cause__
            why = (cause.strerror if isinstance(cause, OSError) else None) or error
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
        index = self.index()
        write_json(self.folder / INDEX, index | {"best": None})

    def clean(self) -> None:
        """Remove what a run that was killed, or could not remove it, has left behind."""
        for stale in self.folder.glob(".step-*"):
            shutil.rmtree(stale, ignore_errors=True)
        for stale in self.folder.glob(f".{INDEX}-*"):
            stale.unlink(missing_ok=True)
        self._tidy(self.index())

    def _found(self) -> dict[str, Any]:
        """The index as the checkpoints themselves tell it."""
        names = sorted(
            (p.name for p in self.folder.glob("step-*") if NAME.fullmatch(p.name)), reverse=True
        )
        best = None
        if names:
            # A damaged one is told when it is read; here it only does not know the best.
            with contextlib.suppress(FileError):
                best = read_json(self.folder / names[0] / STATE).get("best")
        known = isinstance(best, str) and NAME.fullmatch(best)
        return {"last": names, "best": best if known else None}

    def _there(self, names: Iterable[str | None]) -> Iterator[Path]:
        places = (self.folder / name for name in names if name is not None)
        return (place for place in places if place.is_dir())

    def _tidy(self, index: dict[str, Any]) -> None:
        kept = {*index["last"], index["best"]}
        for folder in self.folder.glob("step-*"):
            if folder.name not in kept:
                shutil.rmtree(folder, ignore_errors=True)


def load_checkpoint(
    folder: Path,
    *,
    factory: Callable[..., nn.Module] | None = None,
    trust: Sequence[str] = (),
    allow_nan: bool = False,
) -> nn.Module:
    """The model of a checkpoint, all of whose files have their checksums.

    Args:
        folder: of the checkpoint.
        factory: as in `continua.load`.
        trust: as in `continua.load`.
        allow_nan: as in `continua.load`.
    """
    contents = _checked(folder)
    return load_contents(folder, contents, factory=factory, trust=trust, allow_nan=allow_nan)


def _checked(folder: Path) -> dict[str, bytes]:
    """What the files of a checkpoint hold, each with its checksum."""
    if (folder / CHECKSUMS).exists():
        return read_checked(folder, FILES)
    contents = {name: read_bytes(folder / name) for name in FILES}  # of continua 0.1
    told = parse_json(contents[STATE], str(folder / STATE)).get("sha256")
    check_sum(folder / TENSORS, contents[TENSORS], told, STATE)
    return contents


def read(
    folder: Path, recipe: Recipe
) -> tuple[nn.Module, Position, dict[str, Any], dict[str, Tensor]]:
    """A checkpoint: the model, the position, and what `restore` needs.

    Args:
        folder: of the checkpoint.
        recipe: of the model that is trained; its factory makes the one of the checkpoint.
    """
    remedy = f"move {folder} elsewhere to go on from the checkpoint before it"
    path = folder / STATE
    try:
        if (told := entry(read_json(path), "format", int, path)) > FORMAT:
            raise FileError(
                f"{path} has format {told}, newer than {FORMAT}, the newest this continua reads; "
                "upgrade continua"
            )
        contents = _checked(folder)
        state = parse_json(contents[STATE], str(path))
        config = parse_json(contents["config.json"], str(folder / "config.json"))
        name = entry(entry(config, "factory", dict, folder), "name", str, folder)
        if name != recipe.name:
            raise ArgumentError(
                f"{folder.parents[1]} holds a training of {name}, not of {recipe.name}; choose "
                "another folder"
            )
        model = load_contents(folder, contents, factory=recipe.factory, allow_nan=True)
        for name in ("optimizer", "python"):
            entry(state, name, dict, path)
        entry(entry(state, "about", dict, path), "training", dict, path)
        position = _position(entry(state, "position", dict, path), path)
        tensors = load_tensors(contents[TENSORS])
    except SafetensorError as error:
        raise FileError(f"{folder / TENSORS} is no safetensors file ({error}); {remedy}") from error
    except FileError as error:
        raise FileError(f"{error}; {remedy}") from error
    # What was read lies where the file put it; what torch allocates is aligned, and on that
    # depend the last bits of a matrix product.
    with torch.no_grad():
        for tensor in (*model.parameters(), *model.buffers()):
            tensor.data = tensor.data.clone()
    return model, position, state, tensors


def _position(found: dict[str, Any], path: Path) -> Position:
    numbers: dict[str, Any] = dict.fromkeys(("epoch", "batch", "step", "stale"), int)
    numbers |= {"seconds": (int, float), "best": (int, float, type(None)), "finished": bool}
    for name, kind in (numbers | {"sums": dict, "counts": dict}).items():
        entry(found, name, kind, path)
        if kind is int and found[name] < 0:
            raise FileError(f"{path} has {name}={found[name]}, which is below 0")
    return Position(**{name: found[name] for name in asdict(Position())})


def restore(
    optimizer: torch.optim.Optimizer, state: dict[str, Any], tensors: dict[str, Tensor]
) -> None:
    """Put an optimizer and all random generators back."""
    packed = state["optimizer"]
    found: dict[int, dict[str, Any]] = {}
    for index, values in packed["state"].items():
        found[int(index)] = dict(values)
    for name, value in tensors.items():
        kind, _, rest = name.partition(".")
        if kind == "optimizer":
            index, _, key = rest.partition(".")
            found.setdefault(int(index), {})[key] = value
    # Settings are those of the training, not of the file.
    groups = optimizer.state_dict()["param_groups"]
    if [g["params"] for g in packed["param_groups"]] != [g["params"] for g in groups]:
        raise ValueError("its optimizer has other parameters")
    optimizer.load_state_dict({"state": found, "param_groups": groups})
    for parameter, values in optimizer.state.items():
        for key, value in values.items():
            if isinstance(value, Tensor) and value.shape != parameter.shape and value.numel() != 1:
                raise ValueError(f"{key!r} of the optimizer has shape {list(value.shape)}")
            if isinstance(value, Tensor) and value.shape == parameter.shape:
                # In the layout of its parameter, as the optimizer makes it.
                values[key] = torch.empty_like(parameter, dtype=value.dtype).copy_(value)
    prefix = "random."
    generators = {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
    set_generators(generators, state["python"])


def _packed(optimizer: torch.optim.Optimizer) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """An optimizer's state as tensors by name, and everything else for JSON."""
    whole = optimizer.state_dict()
    tensors: dict[str, Tensor] = {}
    numbers: dict[str, dict[str, Any]] = {}
    for index, values in whole["state"].items():
        for key, value in values.items():
            if isinstance(value, Tensor):
                tensors[f"optimizer.{index}.{key}"] = value.detach().cpu().contiguous()
            else:
                numbers.setdefault(str(index), {})[key] = value
    return tensors, {"state": numbers, "param_groups": whole["param_groups"]}
