"""Whether a folder holds this training, and what of it is lost."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import nn

from continua._errors import ArgumentError
from continua.transform import Recipe, recipe_of

from ._checkpoint import Position
from ._config import Training
from ._size import plain

# Options that may change: they decide how long to train and what to log, not what a step does,
# apart from schedules that end with the last epoch.
FREE = frozenset({"epochs", "evaluate_every", "patience", "checkpoint_minutes", "tensorboard"})


def recipe_to_save(model: nn.Module) -> Recipe:
    """The call that made a model; an error if it is not known."""
    model = plain(model)
    recipe = recipe_of(model)
    if recipe is None:
        raise ArgumentError(
            f"how to make this {type(model).__name__} again is not known, so a checkpoint "
            "could not be read; make it with continua.build(factory, ...)"
        )
    return recipe


def check_same(
    folder: Path,
    saved: nn.Module,
    model: nn.Module,
    saved_about: dict[str, Any],
    about: dict[str, Any],
) -> None:
    """Refuse to resume a run with another model, configuration or amount of data.

    `saved` is the model in the checkpoint, of any size, and `saved_about` what the checkpoint says
    about the training; `model` and `about` are those of this training.
    """
    old, new = recipe_to_save(saved).arguments, recipe_to_save(model).arguments
    _refuse_changes(f"{folder} holds a model", old, new)
    # A training of an earlier version has no value for newer options.
    training = Training().config() | saved_about.get("training", {})
    old, new = (
        {name: value for name, value in options.items() if name not in FREE}
        for options in (training, about["training"])
    )
    _refuse_changes(f"{folder} holds a training", old, new)
    if saved_about.get("samples") != about["samples"]:
        raise ArgumentError(
            f"{folder} holds a training on {saved_about.get('samples')} samples, "
            f"not {about['samples']}; choose another folder"
        )


def _refuse_changes(what: str, old: dict[str, Any], new: dict[str, Any]) -> None:
    old, new = (json.loads(json.dumps(values)) for values in (old, new))  # tuples are lists
    for name in sorted(old.keys() | new.keys()):
        if old.get(name) != new.get(name):
            had, has = (json.dumps(v[name]) if name in v else "its default" for v in (old, new))
            raise ArgumentError(f"{what} with {name}={had}, not {has}; choose another folder")


def describe_losses(
    position: Position,
    history: Sequence[dict[str, Any]],
    saved_about: dict[str, Any],
    about: dict[str, Any],
) -> list[str]:
    """What a training that is resumed has lost, in words."""
    lost = []
    if (gone := position.epoch - len(history)) > 0:
        lost.append(f"the measures of {gone} of {position.epoch} epochs")
    before, now = saved_about.get("processes", about["processes"]), about["processes"]
    if before != now:
        lost.append(
            f"the same bits: it had {before} processes and has {now} now, which share out the "
            "batches in another way"
        )
    return lost
