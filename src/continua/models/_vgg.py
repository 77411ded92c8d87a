"""The encoder and decoder of frames, with skips between them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from continua.basis import Basis, Constant, Fourier, PiecewiseConstant
from continua.block import ODEBlock
from continua.gradient import Gradient
from continua.solve import Euler

from ._units import conv

Kind = Literal["svg", "auto", "nanode"]
#: of two convolutions: channels to a module that keeps them
Pair = Callable[[int], nn.Module]
SLOPE = 0.2


def layer(in_channels: int, out_channels: int) -> nn.Sequential:
    """conv3x3-BN-LeakyReLU, the resolution kept."""
    return nn.Sequential(
        conv(in_channels, out_channels), nn.BatchNorm2d(out_channels), nn.LeakyReLU(SLOPE)
    )


def pair_of(kind: Kind, order: int, steps: int, gradient: Gradient | None) -> Pair:
    """How the second and third convolution of a stage are made."""
    if kind == "svg":
        return lambda channels: nn.Sequential(layer(channels, channels), layer(channels, channels))
    basis: Basis = Constant() if kind == "auto" else Fourier(order, period=2 * math.pi)

    def block(channels: int) -> nn.Module:
        first = layer(channels, channels)
        field = nn.Sequential(*first, conv(channels, channels), nn.BatchNorm2d(channels))
        # The statistics of each step are its own: so few steps would not determine those of a
        # trigonometric polynomial, and an autonomous field has no others to share.
        return ODEBlock(
            field, basis, Euler(steps=steps), gradient, state_basis=PiecewiseConstant(steps)
        )

    return block


def stage(in_channels: int, out_channels: int, pair: Pair) -> nn.Sequential:
    """Three convolutions, of which the first sets the channels and the others keep them."""
    return nn.Sequential(layer(in_channels, out_channels), pair(out_channels))


class VGGEncoder(nn.Module):
    """Frames to vectors, and what each stage saw on the way.

    Stages of three 3x3 convolutions, each followed by a 2x2 max-pooling, then a convolution over
    all that is left, batch norm and tanh.

    Args:
        channels: of a frame.
        widths: of the stages.
        side: of what is left after them.
        features: of a vector.
        pair: makes the second and third convolution of a stage.
    """

    def __init__(self, channels: int, widths: Sequence[int], side: int, features: int, pair: Pair):
        super().__init__()
        before = (channels, *widths[:-1])
        self.stages = nn.ModuleList(stage(a, b, pair) for a, b in zip(before, widths, strict=True))
        self.pool = nn.MaxPool2d(2)
        self.last = nn.Sequential(
            nn.Conv2d(widths[-1], features, side, bias=False), nn.BatchNorm2d(features), nn.Tanh()
        )

    def forward(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        """The vectors `[B, features]`, and the skips, finest first."""
        skips = []
        for one in self.stages:
            x = one(x)
            skips.append(x)
            x = self.pool(x)
        h: Tensor = self.last(x)
        return h.flatten(1), skips


class VGGDecoder(nn.Module):
    """Vectors and skips to frames: the encoder's mirror.

    Args:
        channels: of a frame.
        widths: of the encoder's stages.
        side: of what the encoder leaves.
        features: of a vector.
        pair: makes the second and third convolution of a stage.
    """

    def __init__(self, channels: int, widths: Sequence[int], side: int, features: int, pair: Pair):
        super().__init__()
        last = widths[-1]
        self.first = nn.Sequential(
            nn.ConvTranspose2d(features, last, side, bias=False),
            nn.BatchNorm2d(last),
            nn.LeakyReLU(SLOPE),
        )
        self.grow = nn.Upsample(scale_factor=2)
        # What comes from below has the channels of the skip beside it.
        after = (widths[0], *widths[:-1])
        pairs = zip(reversed(widths), reversed(after), strict=True)
        self.stages = nn.ModuleList(stage(2 * a, b, pair) for a, b in pairs)
        self.last = nn.Sequential(nn.Conv2d(widths[0], channels, 3, padding=1), nn.Sigmoid())

    def forward(self, g: Tensor, skips: Sequence[Tensor]) -> Tensor:
        """The frames `[B, C, H, W]` in [0, 1]."""
        x: Tensor = self.first(g[:, :, None, None])
        for one, skip in zip(self.stages, reversed(skips), strict=True):
            x = one(torch.cat([self.grow(x), skip], 1))
        out: Tensor = self.last(x)
        return out
