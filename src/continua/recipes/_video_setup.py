"""Training runs on clips."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

from torch import nn

import continua as ct
from continua import models
from continua.data import Dataset, VideoDataset, load
from continua.train import Task, VideoPrediction

from ._setup import Download, Setup, shortened

Memory = Literal["backprop", "checkpoint"]


@dataclass(frozen=True)
class VideoSetup(Setup):
    """A predictor of video.

    Attributes:
        data: moving-mnist, moving-digits, bair or frames.
        size: side of a frame; None for frames as they are.
        clips: of a pass over moving digits, validation among them.
        test_clips: of the test part of moving digits.
        bounce: of moving digits: reflect, or random.
        array: the name of one of several arrays, for frames, or for clips of BAIR in an `.npz`
            file, where it is `bair` by default.
        conditioning: frames that are given.
        predicted: frames that follow.
        beta: the weight of the divergence.
        futures: of each clip of the test part.
        kind: svg, auto or nanode.
        width: channels of the first stage.
        stages: how many, each halving the resolution.
        features: of a frame's vector.
        latent: how many numbers are drawn for each frame.
        hidden: of every LSTM layer.
        order: of the trigonometric polynomials.
        steps: of a block.
        gradient: of the blocks: checkpoint, which keeps less memory, or backprop.
    """

    data: str = "moving-digits"
    size: int | None = 32
    clips: int = 2_000
    test_clips: int = 500
    bounce: str = "reflect"
    array: str | None = None
    conditioning: int = 2
    predicted: int = 10
    beta: float = 1e-4
    futures: int = 5
    kind: str = "nanode"
    width: int = 8
    stages: int = 3
    features: int = 64
    latent: int = 10
    hidden: int = 128
    order: int = 3
    steps: int = 3
    gradient: Memory = "checkpoint"

    def dataset(self, folder: Path | None, progress: Download = None) -> Dataset:
        if self.data == "bair" and folder is not None and folder.suffix.lower() == ".npz":
            # Some of its clips, for who has no room for all 32 GB.
            own = replace(self, data="frames", array=self.array or "bair")
            return replace(own.dataset(folder, progress), name=f"bair ({folder.name})")
        options: dict[str, Any] = {}
        if self.data.startswith("moving-"):
            if self.size is None:
                raise ct.ArgumentError("moving digits need a frame: give size, such as size=32")
            options = {
                "n": self.clips, "test": self.test_clips, "size": self.size,
                "bounce": self.bounce, "frames": self.conditioning + self.predicted,
            }  # fmt: skip
        elif self.data == "frames":
            options = {"size": self.size, "array": self.array}
        video = load(
            self.data, folder=folder, seed=self.training.seed, progress=progress, **options
        )
        return shortened(video, self.samples, self.held_out)

    def make(self, dataset: Dataset) -> nn.Module:
        channels, height, width = _clips(dataset).shape
        if height != width:
            raise ct.ArgumentError(
                f"frames of {dataset.name} are {height}x{width}, not square; give size= to cut "
                "and resize them"
            )
        if self.gradient not in get_args(Memory):
            raise ct.ArgumentError(f"gradient is 'checkpoint' or 'backprop', not {self.gradient!r}")
        model = ct.build(
            models.video_predictor,
            kind=self.kind,
            size=height,
            channels=channels,
            width=self.width,
            stages=self.stages,
            features=self.features,
            latent=self.latent,
            hidden=self.hidden,
            order=self.order,
            steps=self.steps,
        )
        # A file holds the gradient of each block, not the factory's argument.
        for module in model.modules():
            if isinstance(module, ct.ODEBlock) and self.gradient == "checkpoint":
                module.gradient = ct.Checkpoint()
        return model

    def task(self, dataset: Dataset) -> Task:
        return VideoPrediction(
            _clips(dataset),
            conditioning=self.conditioning,
            predicted=self.predicted,
            beta=self.beta,
            futures=self.futures,
        )


def _clips(dataset: Dataset) -> VideoDataset:
    if not isinstance(dataset, VideoDataset):
        raise ct.ArgumentError(f"{dataset.name} are no clips")
    return dataset
