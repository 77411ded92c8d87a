"""Checkpoints: everything that a run needs to go on as if it had not stopped."""

from __future__ import annotations

import hashlib
import os
import random
import shutil
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor, nn

from continua._errors import FileError
from continua.transform import load, save

from ._files import make_folder, read_json, write_json, write_whole

FORMAT = 1
FOLDER = "checkpoints"
INDEX = "index.json"
STATE = "training.json"
TENSORS = "training.safetensors"


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
        keep: how many of the last ones to keep.
    """

    def __init__(self, run: Path, keep: int = 2):
        self.folder, self.keep = run / FOLDER, keep

    def index(self) -> dict[str, Any]:
        """The names of the last checkpoints, newest first, and of the best."""
        path = self.folder / INDEX
        if not path.exists():
            return {"last": [], "best": None}
        index = read_json(path)
        if not isinstance(index, dict) or not {"last", "best"} <= index.keys():
            raise FileError(f"{path} is not an index of checkpoints")
        return index

    def last(self) -> Path | None:
        """The newest checkpoint."""
        return next((self.folder / name for name in self.index()["last"]), None)

    def best(self) -> Path | None:
        """The best one; the newest if none was ever better than another."""
        name = self.index()["best"]
        return self.last() if name is None else self.folder / name

    def write(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        position: Position,
        scaler: dict[str, Any] | None,
        best: bool,
    ) -> Path:
        """Add a checkpoint, and remove what is no longer needed.

        Args:
            model: to be saved.
            optimizer: of its parameters.
            position: where the training is.
            scaler: the state of mixed precision's gradient scaler, if it has one.
            best: whether it is the best so far.
        """
        make_folder(self.folder)
        index = self.index()
        name = f"step-{position.step:08d}"
        place, temporary = self.folder / name, self.folder / f".{name}-{os.getpid()}"
        try:
            for stale in self.folder.glob(".step-*"):
                shutil.rmtree(stale, ignore_errors=True)
            save(model, temporary)
            tensors, numbers = _packed(optimizer)
            tensors |= {f"random.{k}": v for k, v in _generators().items()}
            content = save_tensors(tensors)
            write_whole(temporary / TENSORS, content)
            write_json(
                temporary / STATE,
                {
                    "format": FORMAT,
                    "position": asdict(position),
                    "optimizer": numbers,
                    "scaler": scaler,
                    "python": _python_state(),
                    "sha256": hashlib.sha256(content).hexdigest(),
                },
            )
            if place.exists():
                shutil.rmtree(place)
            os.replace(temporary, place)
        except OSError as error:
            raise FileError(
                f"cannot write the checkpoint {place}: {error.strerror or error}; "
                "the one before it is untouched"
            ) from error
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        index["last"] = [name, *(n for n in index["last"] if n != name)][: self.keep]
        if best:
            index["best"] = name
        write_json(self.folder / INDEX, index)
        self._tidy(index)
        return place

    def forget_best(self) -> None:
        """Nothing is the best any more, because models have another size from here on."""
        index = self.index()
        write_json(self.folder / INDEX, index | {"best": None})

    def _tidy(self, index: dict[str, Any]) -> None:
        kept = {*index["last"], index["best"]}
        for folder in self.folder.glob("step-*"):
            if folder.name not in kept:
                shutil.rmtree(folder, ignore_errors=True)


def read(folder: Path) -> tuple[nn.Module, Position, dict[str, Any], dict[str, Tensor]]:
    """A checkpoint: the model, the position, and what `restore` needs."""
    try:
        model = load(folder)
        state = read_json(folder / STATE)
        content = (folder / TENSORS).read_bytes()
        if hashlib.sha256(content).hexdigest() != state.get("sha256"):
            raise FileError(f"{folder / TENSORS} does not have the checksum in {STATE}")
        tensors = load_tensors(content)
        position = Position(**state["position"])
    except (OSError, SafetensorError, KeyError, TypeError, AttributeError) as error:
        raise FileError(f"the checkpoint {folder} is damaged: {error}") from error
    except FileError as error:
        raise FileError(
            f"{error}; remove {folder} to go on from the checkpoint before it"
        ) from error
    return model, position, state, tensors


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
    optimizer.load_state_dict({"state": found, "param_groups": packed["param_groups"]})
    torch.set_rng_state(tensors["random.cpu"])
    if torch.cuda.is_available():
        for name, value in tensors.items():
            if name.startswith("random.cuda"):
                torch.cuda.set_rng_state(value, int(name.removeprefix("random.cuda")))
    version, key, gauss = state["python"]["random"]
    random.setstate((version, tuple(key), gauss))
    kind, keys, position, has, cached = state["python"]["numpy"]
    np.random.set_state((kind, np.array(keys, dtype=np.uint32), position, has, cached))


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


def _generators() -> dict[str, Tensor]:
    states = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        for i, state in enumerate(torch.cuda.get_rng_state_all()):
            states[f"cuda{i}"] = state
    return states


def _python_state() -> dict[str, Any]:
    version, key, gauss = random.getstate()
    kind, keys, position, has, cached = np.random.get_state(legacy=True)
    return {
        "random": [version, list(key), gauss],
        "numpy": [kind, np.asarray(keys).tolist(), int(position), int(has), float(cached)],
    }
