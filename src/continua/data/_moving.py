"""Digits that move about in a frame and bounce off its walls."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from continua._errors import ArgumentError
from continua._values import whole_number

from ._dataset import Dataset, Part
from ._split import checked_seed, cut
from ._video import Store, VideoDataset

Bounce = Literal["reflect", "random"]

#: what `load` takes besides the source of the digits
OPTIONS: Mapping[str, Any] = {
    "n": 10_000, "test": 1_000, "frames": 20, "size": 64, "digits": 2, "digit_size": None,
    "speed": 0.1, "bounce": "reflect",
}  # fmt: skip


class Moving(Store):
    r"""Clips as places of digits, drawn when they are asked for.

    A digit of side d has its corner at a point of a square of side `size - d`, where it starts
    anywhere, in any direction. With the walls as mirrors its way is a triangle wave,

    .. math:: p(t) = |((p_0 + v t + 1) \bmod 2) - 1|

    in units of that square. Where digits overlap the brighter pixel counts.

    A part holds the corners, `[N, T, digits, 2]`, and as targets which digits they are. With a
    generator, clips of the training part are made anew from its digits: there is no end of them.

    Args:
        images: every digit, `[M, d, d]` in uint8, those of the training part first.
        fresh: how many those are.
        size: of a frame.
        frames: of a clip.
        digits: in a clip.
        speed: the way of a frame, in units of the square.
        bounce: `"reflect"`, or `"random"`, where a digit leaves a wall at any angle and a speed
            between half and one and a half times its first one, which no model can foresee.
    """

    def __init__(
        self,
        images: Tensor,
        fresh: int,
        *,
        size: int,
        frames: int,
        digits: int,
        speed: float,
        bounce: Bounce,
    ):
        self.images, self.fresh = images, fresh
        self.frames, self.digits, self.speed, self.bounce = frames, digits, speed, bounce
        self.shape = (1, size, size)

    def part(self, count: int, first: int, last: int, generator: torch.Generator) -> Part:
        """So many clips with digits from `first` up to but not including `last`."""
        shape = (count, self.digits)
        which = torch.randint(first, max(last, first + 1), shape, generator=generator)
        room = self.shape[1] - self.images.shape[1]
        places = _paths(shape, self.frames, self.speed, self.bounce, generator)
        return Part((places * room).round().short(), which)

    def read(self, part: Part, index: Tensor, generator: torch.Generator | None) -> Tensor:
        if generator is not None:
            part, index = (
                self.part(len(index), 0, self.fresh, generator),
                torch.arange(len(index)),
            )
        return self.drawn(part.inputs[index].long(), part.targets[index])

    def drawn(self, corners: Tensor, which: Tensor) -> Tensor:
        """The frames, `[B, T, 1, size, size]`.

        Args:
            corners: row and column of each digit, `[B, T, digits, 2]`.
            which: digits, `[B, digits]`.
        """
        B, T, digits, _ = corners.shape
        side, size = self.images.shape[1], self.shape[1]
        frames = torch.zeros(B * T, size * size, dtype=torch.uint8)
        within = torch.arange(side)
        for k in range(digits):
            rows = corners[:, :, k, 0, None] + within  # [B, T, d]
            columns = corners[:, :, k, 1, None] + within
            place = (rows[..., :, None] * size + columns[..., None, :]).reshape(B * T, -1)
            pixels = self.images[which[:, k]].reshape(B, 1, -1).expand(B, T, -1)
            # Within one digit no pixel comes twice, so the larger one can be written.
            frames.scatter_reduce_(1, place, pixels.reshape(B * T, -1), "amax")
        return frames.reshape(B, T, 1, size, size)


def _paths(
    shape: tuple[int, int],
    frames: int,
    speed: float,
    bounce: Bounce,
    generator: torch.Generator,
) -> Tensor:
    """Places in the unit square over time, `[N, T, digits, 2]`."""
    start = torch.rand(*shape, 2, generator=generator)
    angle = 2 * math.pi * torch.rand(shape, generator=generator)
    velocity = speed * torch.stack([angle.sin(), angle.cos()], -1)  # [N, digits, 2]
    if bounce == "reflect":
        time = torch.arange(frames).view(1, -1, 1, 1)
        way = start[:, None] + velocity[:, None] * time
        return ((way + 1) % 2 - 1).abs()
    places, place = [start], start
    for _ in range(frames - 1):
        place = place + velocity
        hit = (place < 0) | (place > 1)  # [N, digits, 2]
        place = torch.where(place < 0, -place, place)
        place = torch.where(place > 1, 2 - place, place)
        angle = 2 * math.pi * torch.rand(shape, generator=generator)
        pace = speed * (0.5 + torch.rand(shape, generator=generator))
        drawn = pace[..., None] * torch.stack([angle.sin(), angle.cos()], -1)
        # Away from the wall that was hit, as it was otherwise.
        away = torch.where(place < 0.5, drawn.abs(), -drawn.abs())
        velocity = torch.where(hit.any(-1, keepdim=True), torch.where(hit, away, drawn), velocity)
        places.append(place)
    return torch.stack(places, 1)


def read_moving(
    name: str, source: Dataset, seed: int, validation: float, options: Mapping[str, Any]
) -> VideoDataset:
    """Clips of the digits of a set; no digit is in two parts.

    The test part is the same for every seed.

    Args:
        name: of the clips.
        source: of the digits; its validation part is cut here.
        seed: of the training and validation parts.
        validation: the share of `n` clips that is for validation, and of the digits too.
        options: see `OPTIONS`.
    """
    checked_seed(seed)
    numbers = {k: whole_number(k, options[k]) for k in ("n", "test", "frames", "size", "digits")}
    size, n = numbers["size"], numbers["n"]
    side = options["digit_size"]
    side = max(size * 7 // 16, 1) if side is None else whole_number("digit_size", side)
    if side > size:
        raise ArgumentError(f"digits of {side} pixels do not fit into frames of {size}")
    speed = options["speed"]
    if isinstance(speed, bool) or not isinstance(speed, int | float) or not 0 <= speed <= 1:
        raise ArgumentError(
            f"speed is the way of a frame, from 0 to 1 of the way across, not {speed!r}"
        )
    if options["bounce"] not in get_args(Bounce):
        raise ArgumentError(f"bounce is 'reflect' or 'random', not {options['bounce']!r}")
    kept, held = cut(source.train, validation, seed)
    parts = [kept, held, source.test]
    images = torch.cat([_resized(part.inputs, side, source.scale) for part in parts])
    store = Moving(
        images,
        len(kept),
        size=size,
        frames=numbers["frames"],
        digits=numbers["digits"],
        speed=float(speed),
        bounce=options["bounce"],
    )
    aside = round(validation * n)
    if validation and not 0 < aside < n:
        raise ArgumentError(
            f"a share of {validation!r} of {n:,} clips leaves a part empty; choose another share"
        )
    # Its own generator for each part: none depends on how many clips another has.
    ends = [0, len(kept), len(kept) + len(held), len(images)]
    train, held_clips, test = (
        store.part(count, ends[i], ends[i + 1], _generator(i, which))
        for i, (count, which) in enumerate(((n - aside, seed), (aside, seed), (numbers["test"], 0)))
    )
    return VideoDataset(name, train, held_clips, test, classes=0, store=store)


def _generator(part: int, seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(3 * seed + part)


def _resized(images: Tensor, side: int, scale: float) -> Tensor:
    """Grey images of this side, from 0 to 255: `[N, d, d]`."""
    grey = images.float() * (255 / scale)  # [N, 1, H, W]
    if grey.shape[-1] != side:
        # Without antialiasing a smaller digit loses strokes.
        grey = F.interpolate(
            grey, size=(side, side), mode="bilinear", antialias=side < grey.shape[-1]
        )
    return grey.round().clamp(0, 255).byte().squeeze(1)
