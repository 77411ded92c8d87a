"""Models on disk: the best of a run, or one made from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import tyro
from torch import nn

import continua as ct
from continua.files import read_json, write_json
from continua.train import Checkpoints, load_checkpoint, make_folder

from ._run import RUN, Run, plain

ORIGIN = "origin.json"


@dataclass(frozen=True, kw_only=True)
class TrustOptions:
    """Whose code a file may name."""

    trust: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """A package of yours whose models may be loaded, besides those of continua."""


def open_model(folder: Path, trust: Sequence[str] = ()) -> tuple[nn.Module, Run | None]:
    """The model in a folder, and the run it comes from, if that is known.

    Args:
        folder: of a run, of `continua.train.fit`, or of `ct.save`; one that `compress`, `refine`
            or `export` wrote knows its run.
        trust: as in `continua.load`.
    """
    if not folder.exists():
        raise ct.FileError(f"there is no folder {folder}")
    if not folder.is_dir():
        raise ct.FileError(f"{folder} is a file; runs and models are folders")
    if (folder / RUN).exists():
        run = Run.open(folder)
        return run.model(trust), run
    best = None if (folder / "config.json").exists() else Checkpoints(folder).best()
    if best is not None:
        return plain(load_checkpoint(best, trust=trust)), None  # a folder of continua.train.fit
    if not knows_its_run(folder):
        return plain(ct.load(folder, trust=trust)), None
    run = Run.from_config(folder, read_json(folder / ORIGIN), folder / ORIGIN)
    run.setup.check_known()
    return run.laid_out(plain(ct.load(folder, trust=trust))), run


def knows_its_run(folder: Path) -> bool:
    """Whether a model was made from a run, whose data it can be measured on."""
    return (folder / ORIGIN).exists()


def check_free(folder: Path, force: bool) -> None:
    """Refuse to write over a model, unless that is wanted."""
    if not force and _is_model(folder / "config.json"):
        raise ct.FileError(f"{folder} holds a model; --force overwrites it")


def save_model(
    model: nn.Module, folder: Path, run: Run | None, force: bool = False, **how: Any
) -> None:
    """Save a model, and beside it where it comes from and how it was made."""
    check_free(folder, force)
    if (folder / RUN).exists():
        raise ct.FileError(f"{folder} is a run folder; choose another for the model")
    make_folder(folder)
    if (folder / "config.json").exists() and not _is_model(folder / "config.json"):
        raise ct.FileError(
            f"{folder} has a config.json that is not of a continua model; choose another folder"
        )
    # First, so that no model stands beside the origin of another.
    (folder / ORIGIN).unlink(missing_ok=True)
    ct.save(model.to(memory_format=torch.contiguous_format), folder)  # type: ignore[call-overload]
    if run is not None:
        write_json(folder / ORIGIN, run.config() | {"made": how})


def _is_model(path: Path) -> bool:
    try:
        return {"format", "factory", "blocks"} <= read_json(path).keys()
    except ct.FileError:
        return False
