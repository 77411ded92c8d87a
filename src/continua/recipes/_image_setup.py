"""Training runs of image classifiers."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

import continua as ct
from continua import models
from continua.data import Dataset, augmented, load
from continua.train import Classification, Task

from ._parse import nearest, parse_basis, parse_gradient, parse_solver
from ._setup import Download, Setup, shortened


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
        stem_stride: of the first convolution of a residual_flow.
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
    stem_stride: int = 1
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
            "stem_stride": self.stem_stride,
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


def accepted(factory: Callable[..., nn.Module]) -> set[str]:
    """The names of the arguments that a model's function takes."""
    names = set()
    for parameter in inspect.signature(factory).parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            names |= set(models.ImageOptions.__annotations__)
        else:
            names.add(parameter.name)
    return names
