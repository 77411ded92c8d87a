"""Random changes of a batch of images that do not change what they show."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from continua._errors import ArgumentError, ShapeError
from continua._values import whole_number


def pad_crop(images: Tensor, pad: int, generator: torch.Generator) -> Tensor:
    """Every image moved by up to `pad` pixels each way, with zeros where it leaves a gap.

    The same as padding every side with `pad` zeros and cropping at a random place, each image at
    its own. Pad raw pixels, before they are normalised, so that the gap is black.

    Args:
        images: `[B, C, H, W]` of any type, on any device.
        pad: in pixels.
        generator: on the CPU, so that the same seed moves the same images on every device.

    Example:
        >>> images = torch.ones(2, 3, 8, 8, dtype=torch.uint8)
        >>> moved = pad_crop(images, 1, torch.Generator().manual_seed(0))
        >>> moved.shape, moved.dtype
        (torch.Size([2, 3, 8, 8]), torch.uint8)
    """
    _check(images, generator)
    pad = whole_number("pad", pad, 0)
    if pad == 0 or len(images) == 0:
        return images
    B, _, H, W = images.shape
    corner = torch.randint(0, 2 * pad + 1, (2, B), generator=generator).to(images.device)
    padded = F.pad(images, (pad, pad, pad, pad))
    # All windows as one view without a copy; picking one per image copies exactly the result.
    windows = padded.unfold(2, H, 1).unfold(3, W, 1)  # [B, C, 2p+1, 2p+1, H, W]
    which = torch.arange(B, device=images.device)
    return windows[which, :, corner[0], corner[1]]  # [B, C, H, W]


def flip(images: Tensor, generator: torch.Generator) -> Tensor:
    """Every image mirrored left to right with probability one half.

    Args:
        images: `[B, C, H, W]` of any type, on any device.
        generator: on the CPU.

    Example:
        >>> images = torch.arange(3).expand(4, 1, 1, 3)
        >>> flip(images, torch.Generator().manual_seed(0)).flatten(1).tolist()
        [[2, 1, 0], [0, 1, 2], [2, 1, 0], [2, 1, 0]]
    """
    _check(images, generator)
    mirrored = torch.rand(len(images), generator=generator) < 0.5
    return torch.where(mirrored.to(images.device).view(-1, 1, 1, 1), images.flip(3), images)


def augmented(
    images: Tensor, generator: torch.Generator, pad: int = 4, mirror: bool = True
) -> Tensor:
    """The usual augmentation of CIFAR: `pad_crop`, then `flip`.

    Args:
        images: `[B, C, H, W]`.
        generator: on the CPU.
        pad: in pixels; 0 moves nothing.
        mirror: whether to mirror; not for digits or words.

    Example:
        >>> images = torch.zeros(128, 3, 32, 32, dtype=torch.uint8)
        >>> augmented(images, torch.Generator().manual_seed(0)).shape
        torch.Size([128, 3, 32, 32])
    """
    moved = pad_crop(images, pad, generator)
    return flip(moved, generator) if mirror else moved


def _check(images: Tensor, generator: torch.Generator) -> None:
    if not isinstance(images, Tensor) or images.ndim != 4:
        shown = list(images.shape) if isinstance(images, Tensor) else type(images).__name__
        raise ShapeError(f"a batch of images is [B, C, H, W], not {shown}")
    if not isinstance(generator, torch.Generator) or generator.device.type != "cpu":
        raise ArgumentError(f"generator is a torch.Generator on the CPU, not {generator!r}")
