"""What a training run consists of: model, data and configuration, as plain values."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Self

from torch import nn

import continua as ct
from continua.data import Dataset, Part
from continua.train import Task, Training

from ._parse import nearest
from ._scaled import scaled
from ._settings import parsed

Scale = Literal["smoke", "laptop", "night", "full"]
#: called with the name of a file, its bytes so far and its size
Download = Callable[[str, int, int], None] | None
#: the kinds of runs, by name
SETUPS: dict[str, type[Setup]] = {}


@dataclass(frozen=True)
class Setup(ABC):
    """One training run; every field is a value that JSON can hold.

    Attributes:
        training: the configuration of the loop.
        samples: of the training part to use; None for all.
        held_out: samples of the validation part, and of the test part, to use; None for all.
        channels_last: whether images are in channels-last memory format, which is several times
            faster on many processors.
    """

    training: Training = field(default_factory=Training)
    samples: int | None = None
    held_out: int | None = None
    channels_last: bool = False

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        SETUPS[cls.__name__] = cls

    def check_known(self) -> None:
        """Raise if this process does not know what the run was made from."""
        return None

    @abstractmethod
    def dataset(self, folder: Path | None, progress: Download = None) -> Dataset:
        """The data, read from a folder or from the user's cache."""

    @abstractmethod
    def make(self, dataset: Dataset) -> nn.Module:
        """A fresh model for this data, by `continua.build`."""

    @abstractmethod
    def task(self, dataset: Dataset) -> Task:
        """Loss and measures."""

    def config(self) -> dict[str, Any]:
        """All values, ready for JSON."""
        return {"type": type(self).__name__} | dataclasses.asdict(self)

    def changed(self, settings: Sequence[str]) -> Self:
        """The setup with settings of the form name=value, of its own or of its training.

        All are set at once, so that epochs and refine_epochs can come in any order. Where `epochs`
        changes, the epochs of refinements and milestones and the warm-up move along, unless they
        are set too.
        """
        own = {f.name for f in dataclasses.fields(self)} - {"training"}
        of_training = {f.name for f in dataclasses.fields(Training)}
        mine: dict[str, Any] = {}
        training: dict[str, Any] = {}
        for setting in settings:
            name, equals, text = setting.partition("=")
            name = name.strip().replace("-", "_").removeprefix("training.")
            if not equals:
                raise ct.ArgumentError(f"a setting is written name=value, not {setting!r}")
            if name in own:
                mine[name] = parsed(type(self), name, text)
            elif name in of_training:
                training[name] = parsed(Training, name, text)
            else:
                raise nearest(name, sorted(own | of_training), "setting")
        moved = scaled(self.training, training)
        changed = dataclasses.replace(self.training, **moved, **training)
        return dataclasses.replace(self, **mine, training=changed)


def setup_from_config(config: dict[str, Any]) -> Setup:
    """The inverse of `Setup.config`."""
    if not isinstance(config, dict) or not isinstance(config.get("training"), dict):
        raise ct.ArgumentError("it has no settings")
    values: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in config.items()
    }
    name = values.pop("type", None)
    if name not in list(SETUPS):
        raise ct.ArgumentError(f"{name!r} is no kind of run")
    try:
        values["training"] = Training.from_config(values["training"])
        return SETUPS[name](**values)
    except TypeError as error:
        raise ct.ArgumentError(f"a run cannot be made from this: {error}") from None


def shortened(dataset: Dataset, samples: int | None, held_out: int | None = None) -> Dataset:
    """The first samples only, of the training part and of the other two."""
    sizes = {"samples": samples, "held_out": held_out}
    for name, size in sizes.items():
        if size is not None and size < 1:
            raise ct.ArgumentError(f"{name} is at least 1, not {size}")
    return dataclasses.replace(
        dataset,
        train=_first(dataset.train, samples),
        validation=_first(dataset.validation, held_out),
        test=_first(dataset.test, held_out),
    )


def _first(part: Part, size: int | None) -> Part:
    return part if size is None else Part(part.inputs[:size], part.targets[:size])
