"""What a training run consists of: model, data and course, as plain values."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import types
import typing
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Self

import torch
from torch import nn

import continua as ct
from continua import models
from continua.data import Dataset, Part, augmented, load
from continua.train import Classification, Task, Training

from ._parse import nearest, parse_basis, parse_gradient, parse_solver

Scale = Literal["smoke", "laptop", "full"]
#: told a file, its bytes so far and in all
Download = Callable[[str, int, int], None] | None


@dataclass(frozen=True)
class Setup(ABC):
    """One training run; every field is a value that JSON can hold.

    Attributes:
        training: the course.
        samples: of the training part to use; None for all.
        held_out: samples of the validation part, and of the test part, to use; None for all.
        channels_last: whether images lie in memory channel by channel, which is several times
            faster on many processors.
    """

    training: Training = field(default_factory=Training)
    samples: int | None = None
    held_out: int | None = None
    channels_last: bool = False

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
        """The setup with settings of the form name=value; the course's names count as its own.

        They are made together, so that epochs and refine_epochs can come in any order.
        """
        own = {f.name for f in dataclasses.fields(self)} - {"training"}
        course = {f.name for f in dataclasses.fields(Training)}
        mine: dict[str, Any] = {}
        training: dict[str, Any] = {}
        for setting in settings:
            name, equals, text = setting.partition("=")
            name = name.strip().replace("-", "_").removeprefix("training.")
            if not equals:
                raise ct.ArgumentError(f"a setting is written name=value, not {setting!r}")
            if name in own:
                mine[name] = _value(type(self), name, text)
            elif name in course:
                training[name] = _value(Training, name, text)
            else:
                raise nearest(name, sorted(own | course), "setting")
        changed = dataclasses.replace(self.training, **training)
        return dataclasses.replace(self, **mine, training=changed)


@dataclass(frozen=True)
class ImageSetup(Setup):
    """An image classifier.

    Attributes:
        data: the name of the images.
        validation: the share of the training part to hold out; None for the usual one, 0 for
            none, which takes the model of the last step.
        model: a name of `continua.models.MODELS`.
        kind: of an augmented_classifier: vanilla, zero, input-layer or second-order.
        width: channels of the first stage.
        stages: how many; None for the model's own number.
        basis: of the weights over depth.
        state_basis: of the batch-norm statistics; None for the weights' own.
        solver: of every block.
        units: per stage, of a discrete network.
        gradient: of every block; None for the model's own.
        widths: channels of each flow of a residual_flow.
        append_time: whether a residual_flow's convolutions see the depth.
        epsilon: the length of a block's span.
        stitch_scale: the weight of a stitch's residual.
        norm: batch, group, none or shared.
        skip_init: whether residuals start with a gain of zero.
        pad: pixels by which training images are shifted at most.
        mirror: whether training images are mirrored.
        label_smoothing: the share of a target spread over all classes.
    """

    data: str = "digits"
    validation: float | None = None
    model: str = "continuous_net"
    kind: str = "input-layer"
    width: int = 16
    stages: int | None = None
    basis: str = "PiecewiseConstant(1)"
    state_basis: str | None = None
    solver: str = "Euler(steps=1)"
    gradient: str | None = None
    units: int = 1
    widths: tuple[int, ...] = (64, 128, 212)
    append_time: bool = False
    epsilon: float = 1.0
    stitch_scale: float = 1.0
    norm: str = "batch"
    skip_init: bool = False
    pad: int = 0
    mirror: bool = False
    label_smoothing: float = 0.0

    def dataset(self, folder: Path | None, progress: Download = None) -> Dataset:
        images = load(
            self.data,
            folder=folder,
            seed=self.training.seed,
            validation=self.validation,
            progress=progress,
        )
        return shortened(images, self.samples, self.held_out)

    def make(self, dataset: Dataset) -> nn.Module:
        if self.model not in models.MODELS:
            raise nearest(self.model, models.MODELS, "model")
        if dataset.train.inputs.dim() != 4:
            raise ct.ArgumentError(f"data={self.data!r} are no images")
        if self.stages is not None:
            # Each stage doubles the width: far too many would take all memory, not fail.
            most = max(min(dataset.train.inputs.shape[2:]), 1).bit_length()
            if self.stages > most:
                raise ct.ArgumentError(
                    f"images of {self.data} can be halved for {most} stages at most, "
                    f"not {self.stages}"
                )
        offered: dict[str, Any] = {
            "in_channels": dataset.train.inputs.shape[1],
            "classes": dataset.classes,
            "kind": self.kind,
            "width": self.width,
            "widths": self.widths,
            "alpha": max(self.width // 16, 1),  # how a wide ResNet says it
            "basis": parse_basis(self.basis),
            "state_basis": None if self.state_basis is None else parse_basis(self.state_basis),
            "solver": parse_solver(self.solver),
            "gradient": None if self.gradient is None else parse_gradient(self.gradient),
            "units": self.units,
            "first_stitch": True,
            "append_time": self.append_time,
            "epsilon": self.epsilon,
            "stitch_scale": self.stitch_scale,
            "norm": self.norm,
            "skip_init": self.skip_init,
        }
        if self.stages is not None:
            offered["stages"] = self.stages
        factory = models.MODELS[self.model]
        taken = accepted(factory)
        return ct.build(factory, **{name: v for name, v in offered.items() if name in taken})

    def task(self, dataset: Dataset) -> Task:
        pad, mirror = self.pad, self.mirror

        def augment(images: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
            return augmented(images, generator, pad=pad, mirror=mirror)

        return Classification(
            dataset,
            augment=augment if pad or mirror else None,
            label_smoothing=self.label_smoothing,
        )


@dataclass(frozen=True)
class TaggingSetup(Setup):
    """A tagger of sentences.

    Attributes:
        data: the name of the treebank.
        model: continuous_tagger, transformer_tagger or linear_tagger.
        width: of embeddings and layers.
        basis: of the weights over depth.
        solver: of the block.
        layers: of the discrete transformer.
        epsilon: the length of the block's span.
        max_length: tokens of a sentence, the rest is cut off.
        label_smoothing: the share of a target spread over all tags.
    """

    data: str = "ud-english-ewt"
    model: str = "continuous_tagger"
    width: int = 128
    basis: str = "PiecewiseConstant(1)"
    solver: str = "Euler(steps=1)"
    layers: int = 1
    epsilon: float = 1.0
    max_length: int = 102
    label_smoothing: float = 0.0

    def dataset(self, folder: Path | None, progress: Download = None) -> Dataset:
        return shortened(
            load(self.data, folder=folder, max_length=self.max_length, progress=progress),
            self.samples,
            self.held_out,
        )

    def make(self, dataset: Dataset) -> nn.Module:
        if self.model not in models.MODELS:
            raise nearest(self.model, models.MODELS, "model")
        arguments: dict[str, Any] = {
            "vocabulary": len(dataset.forms),
            "tags": dataset.classes,
            "width": self.width,
            "max_length": self.max_length,
        }
        factory = models.MODELS[self.model]
        if self.model == "linear_tagger":
            return ct.build(factory, **arguments)
        arguments["mlp"] = self.width
        if self.model == "transformer_tagger":
            return ct.build(factory, **arguments, layers=self.layers)
        return ct.build(
            factory,
            **arguments,
            basis=parse_basis(self.basis),
            solver=parse_solver(self.solver),
            epsilon=self.epsilon,
        )

    def task(self, dataset: Dataset) -> Task:
        return Classification(dataset, label_smoothing=self.label_smoothing, ignore=0, trim=True)


@dataclass(frozen=True)
class PointSetup(Setup):
    """The toy classifier, on points of the plane.

    Attributes:
        data: moons, circles, annuli or spirals.
        n: how many points.
        noise: their standard deviation.
        dim: of the state.
        basis: of the weights over depth.
        solver: of the block.
    """

    data: str = "circles"
    n: int = 15_000
    noise: float = 0.05
    dim: int = 3
    basis: str = "PiecewiseConstant(3)"
    solver: str = "RK4(steps=10)"

    def dataset(self, folder: Path | None, progress: Download = None) -> Dataset:
        points = load(self.data, seed=self.training.seed, n=self.n, noise=self.noise)
        return shortened(points, self.samples, self.held_out)

    def make(self, dataset: Dataset) -> nn.Module:
        return ct.build(
            models.continuous_classifier,
            dim=self.dim,
            basis=parse_basis(self.basis),
            solver=parse_solver(self.solver),
        )

    def task(self, dataset: Dataset) -> Task:
        return Classification(dataset)


SETUPS: dict[str, type[Setup]] = {
    kind.__name__: kind for kind in (ImageSetup, TaggingSetup, PointSetup)
}


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


def accepted(factory: Callable[..., nn.Module]) -> set[str]:
    """The names of the arguments that a model's function takes."""
    names = set()
    for parameter in inspect.signature(factory).parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            names |= set(models.ImageOptions.__annotations__)
        else:
            names.add(parameter.name)
    return names


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


def _value(kind: type, name: str, text: str) -> Any:
    """A text as a value of a field's type."""
    hint = typing.get_type_hints(kind)[name]
    options = (
        typing.get_args(hint)
        if typing.get_origin(hint) in (types.UnionType, typing.Union)
        else (hint,)
    )
    if text == "none" and type(None) in options:
        return None
    for option in options:
        found = _as(option, text)
        if found is not None:
            return found
    raise ct.ArgumentError(
        f"{name}={text!r} is not a value of type {' or '.join(_named(o) for o in options)}"
    )


def _named(option: Any) -> str:
    """A type as one writes its values."""
    if option is type(None):
        return "none"
    if typing.get_origin(option) is Literal:
        return " or ".join(typing.get_args(option))
    return getattr(option, "__name__", str(option))


def _as(option: Any, text: str) -> Any:
    if typing.get_origin(option) is Literal:
        return text if text in typing.get_args(option) else None
    if option is str:
        return text
    if option is bool:
        return {"true": True, "false": False}.get(text.lower())
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return None
    if option is float and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if option is int and isinstance(value, int) and not isinstance(value, bool):
        return value
    if typing.get_origin(option) is tuple:
        return tuple(value) if isinstance(value, tuple | list) else (value,)
    return None
