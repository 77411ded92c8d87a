"""Clips: what every reader of video returns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from continua._errors import ArgumentError, ShapeError

from ._dataset import Dataset, Part


class Store(ABC):
    """Where the frames of clips come from: memory, files, or a rule.

    Attributes:
        frames: how many a clip has.
        shape: of a frame, `[C, H, W]`.
    """

    frames: int
    shape: tuple[int, int, int]

    @abstractmethod
    def read(self, part: Part, index: Tensor, generator: torch.Generator | None) -> Tensor:
        """Some clips of a part, all frames, `[B, T, C, H, W]` in uint8.

        Args:
            part: that this store made.
            index: which clips.
            generator: for training, where a store can make clips that were never seen.
        """


class InMemory(Store):
    """Clips that the part itself holds.

    Args:
        clips: any of them.
    """

    def __init__(self, clips: Tensor):
        self.frames = clips.shape[1]
        self.shape = (clips.shape[2], clips.shape[3], clips.shape[4])

    def read(self, part: Part, index: Tensor, generator: torch.Generator | None) -> Tensor:
        return part.inputs[index]


@dataclass(frozen=True, eq=False)
class VideoDataset(Dataset):
    """Three disjoint parts of clips.

    What the inputs of a part are depends on the store: frames, or where to find or how to make
    them. `clips` gives the frames.

    Attributes:
        store: where the frames come from.
    """

    store: Store = field(kw_only=True, repr=False)

    @property
    def frames(self) -> int:
        """How many frames a clip has."""
        return self.store.frames

    @property
    def shape(self) -> tuple[int, int, int]:
        """Of a frame: channels, height and width."""
        return self.store.shape

    def clips(
        self,
        part: Literal["train", "validation", "test"],
        index: Tensor,
        *,
        frames: int | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Some clips, `[B, T, C, H, W]` in uint8.

        Args:
            part: which part.
            index: which clips.
            frames: so many of them in a row; None for all. They are the first ones, or with a
                generator begin anywhere.
            generator: for training: clips begin anywhere, and those that are made by a rule are
                made anew.

        Example:
            >>> from continua.data import load
            >>> video = load("moving-digits", size=32, frames=5)
            >>> video.clips("test", torch.arange(3), frames=4).shape
            torch.Size([3, 4, 1, 32, 32])
        """
        count = self.frames if frames is None else frames
        if not 1 <= count <= self.frames:
            raise ArgumentError(
                f"a clip of {self.name} has {self.frames} frames, so {frames!r} of them in a row "
                "cannot be had"
            )
        chosen: Part = getattr(self, part)
        clips = self.store.read(chosen, index, generator)  # [B, T, C, H, W]
        if count == self.frames:
            return clips
        start = torch.zeros(len(clips), dtype=torch.long)
        if generator is not None:
            start = torch.randint(0, self.frames - count + 1, (len(clips),), generator=generator)
        when = start[:, None] + torch.arange(count)  # [B, T]
        return clips[torch.arange(len(clips))[:, None], when]

    def prepared(self, inputs: Tensor) -> Tensor:
        """Frames as float32 in [0, 1]."""
        if inputs.ndim != 5 or tuple(inputs.shape[2:]) != self.shape:
            raise ShapeError(
                f"clips of {self.name} are [B, T, {', '.join(map(str, self.shape))}], "
                f"not {list(inputs.shape)}"
            )
        return inputs.float().div(self.scale)
