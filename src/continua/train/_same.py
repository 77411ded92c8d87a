"""Whether a folder holds the training that is asked for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from torch import nn

from continua._errors import ArgumentError
from continua.transform import recipe_of

from ._config import Training
from ._elastic import plain

# They decide how long to train and what to tell of it, not what a step does. (The schedules that
# end with the last epoch bend to the new end.)
FREE = frozenset({"epochs", "evaluate_every", "patience", "checkpoint_minutes", "tensorboard"})


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
    had, has = _recipe(plain(saved)), _recipe(plain(wanted))
    default = _plain(Training().config())  # of what a training of an earlier version does not say
    if had.get("name") != has.get("name"):
        raise ArgumentError(
            f"{folder} holds a training of {had.get('name')}, not of {has.get('name')}; {remedy}"
        )
    for what, old, new in (
        ("a model", had.get("arguments", {}), has.get("arguments", {})),
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


def _recipe(model: nn.Module) -> dict[str, Any]:
    found = _plain(recipe_of(model) or {})
    assert isinstance(found, dict)
    return found


def _plain(value: Any) -> Any:
    """As it comes back from a file."""
    return json.loads(json.dumps(value))


def _shown(values: dict[str, Any], name: str) -> str:
    return json.dumps(values[name]) if name in values else "its default"
