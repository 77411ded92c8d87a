"""Whether a folder holds the training that is asked for."""

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
from ._elastic import plain

# They decide how long to train and what to tell of it, not what a step does. (The schedules that
# end with the last epoch bend to the new end.)
FREE = frozenset({"epochs", "evaluate_every", "patience", "checkpoint_minutes", "tensorboard"})


def known_recipe(model: nn.Module) -> Recipe:
    """The call that made a model; an error if that is not known."""
    recipe = recipe_of(plain(model))
    if recipe is None:
        raise ArgumentError(
            f"how to make this {type(plain(model)).__name__} again is not known, so a checkpoint "
            "could not be read; make it with continua.build(factory, ...)"
        )
    return recipe


def check_same(
    folder: Path,
    saved: nn.Module,
    wanted: nn.Module,
    saved_about: dict[str, Any],
    about: dict[str, Any],
) -> None:
    """Refuse to go on with another model, course or amount of data.

    Args:
        folder: of the run.
        saved: the model in its checkpoint, of any size.
        wanted: the model to start from.
        saved_about: what the checkpoint says about the training.
        about: the same for the training that is asked for.
    """
    remedy = "choose another folder"
    had, has = known_recipe(saved), known_recipe(wanted)
    default = _plain(Training().config())  # of what a training of an earlier version does not say
    for what, old, new in (
        ("a model", _plain(had.arguments), _plain(has.arguments)),
        ("a training", default | saved_about.get("training", {}), _plain(about["training"])),
    ):
        for name in sorted(old.keys() | new.keys()):
            if (what == "a model" or name not in FREE) and old.get(name) != new.get(name):
                raise ArgumentError(
                    f"{folder} holds {what} with {name}={_shown(old, name)}, "
                    f"not {_shown(new, name)}; {remedy}"
                )
    if saved_about.get("samples") != about["samples"]:
        raise ArgumentError(
            f"{folder} holds a training on {saved_about.get('samples')} samples, "
            f"not {about['samples']}; {remedy}"
        )


def losses(
    position: Position,
    history: Sequence[dict[str, Any]],
    saved_about: dict[str, Any],
    about: dict[str, Any],
) -> list[str]:
    """What a training that goes on has lost.

    Args:
        position: where it is.
        history: what is there of `metrics.jsonl`.
        saved_about: what the checkpoint says about the training.
        about: the same for the training that goes on.
    """
    found = []
    if (gone := position.epoch - len(history)) > 0:
        found.append(f"the measures of {gone} of {position.epoch} epochs")
    before, now = saved_about.get("processes", about["processes"]), about["processes"]
    if before != now:
        found.append(
            f"the same bits: it had {before} processes and has {now} now, which share out the "
            "batches in another way"
        )
    return found


def _plain(value: Any) -> Any:
    """As it comes back from a file."""
    return json.loads(json.dumps(value))


def _shown(values: dict[str, Any], name: str) -> str:
    return json.dumps(values[name]) if name in values else "its default"
