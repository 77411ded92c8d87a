"""The parts of residual image classifiers."""

from __future__ import annotations

import math
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from continua._errors import ArgumentError
from continua._values import whole_number

Activation = Literal["relu", "gelu"]
Norm = Literal["batch", "group", "none", "shared"]
LAYERS: dict[str, type[nn.Module]] = {"relu": nn.ReLU, "gelu": nn.GELU}


class Stitch(nn.Module):
    r"""The join between two stages: a residual unit that may change resolution and width.

    .. math:: y = S(x) + c\, R(x)

    The shortcut S is the identity, or a strided 1x1 convolution with batch norm where the shape
    changes.

    Args:
        in_channels: of the input.
        out_channels: of the output.
        stride: 2 halves the resolution.
        scale: the weight c of the residual.
        activation: `"relu"` or `"gelu"`.
        momentum: the share of a batch in the running statistics.
        norm: of the residual unit, as in `continuous_net`.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        stride: int = 1,
        scale: float = 1.0,
        activation: Activation = "relu",
        momentum: float = 0.1,
        norm: Norm = "batch",
    ):
        super().__init__()
        self.scale = scale
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or in_channels != out_channels:
            self.shortcut = nn.Sequential(
                conv(in_channels, out_channels, size=1, stride=stride),
                batch_norm(out_channels, momentum),
            )
        self.residual = residual_unit(
            in_channels,
            out_channels,
            stride=stride,
            activation=activation,
            momentum=momentum,
            norm=norm,
        )

    def forward(self, x: Tensor) -> Tensor:
        return torch.add(self.shortcut(x), self.residual(x), alpha=self.scale)


class Residual(nn.Module):
    """One layer of a discrete residual network: the input plus the unit's output.

    Args:
        unit: maps a tensor to one of the same shape.
    """

    def __init__(self, unit: nn.Module):
        super().__init__()
        self.unit = unit

    def forward(self, x: Tensor) -> Tensor:
        h: Tensor = self.unit(x)
        return x + h


class Gain(nn.Module):
    """One factor for the whole tensor, zero at first: SkipInit (De and Smith 2020)."""

    def __init__(self) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        return self.gain * x


class ImageMean(nn.Module):
    """The mean over whatever is left of an image, `[B, C, H, W]` to `[B, C]`."""

    def forward(self, x: Tensor) -> Tensor:
        return x.mean((-2, -1))


def residual_unit(
    in_channels: int,
    out_channels: int,
    *,
    stride: int = 1,
    activation: Activation,
    momentum: float,
    norm: Norm = "batch",
    skip_init: bool = False,
) -> nn.Sequential:
    """norm-act-conv3x3-norm-act-conv3x3, without the sum; with `skip_init` a gain at its end."""
    unit = nn.Sequential(
        norm_layer(norm, in_channels, momentum),
        LAYERS[activation](),
        conv(in_channels, out_channels, stride=stride),
        norm_layer(norm, out_channels, momentum),
        LAYERS[activation](),
        conv(out_channels, out_channels),
    )
    if skip_init:
        unit.append(Gain())
    return unit


def stem(in_channels: int, width: int, activation: Activation, momentum: float) -> nn.Sequential:
    """conv3x3-BN-act."""
    return nn.Sequential(
        conv(in_channels, width), batch_norm(width, momentum), LAYERS[activation]()
    )


def head(
    channels: int, classes: int, activation: Activation | None, momentum: float
) -> nn.Sequential:
    """Batch norm, an activation if one is named, the mean over the image, a linear layer."""
    layers: list[nn.Module] = [batch_norm(channels, momentum)]
    if activation is not None:
        layers.append(LAYERS[activation]())
    # The identity keeps the names of weights in files from before the mean was one layer.
    layers += [ImageMean(), nn.Identity(), nn.Linear(channels, classes)]
    return nn.Sequential(*layers)


def conv(in_channels: int, out_channels: int, *, size: int = 3, stride: int = 1) -> nn.Conv2d:
    """A convolution without bias, the resolution kept at stride 1."""
    layer = nn.Conv2d(in_channels, out_channels, size, stride=stride, padding=size // 2, bias=False)
    nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
    return layer


def batch_norm(channels: int, momentum: float) -> nn.BatchNorm2d:
    """Batch norm over images."""
    return nn.BatchNorm2d(channels, momentum=momentum)


def norm_layer(norm: Norm, channels: int, momentum: float) -> nn.Module:
    """The normalisation of a residual unit; an identity keeps the place where there is none."""
    if norm == "none":
        return nn.Identity()
    if norm == "group":
        return nn.GroupNorm(math.gcd(8, channels), channels)
    return batch_norm(channels, momentum)


def check_whole(**values: int) -> None:
    """Refuse what is not a whole number of at least 1."""
    for name, value in values.items():
        whole_number(name, value)


def check_epsilon(epsilon: float) -> None:
    """Refuse a span without length."""
    if not epsilon > 0:
        raise ArgumentError(f"epsilon, the length of the span, is positive, not {epsilon!r}")


def check_activation(activation: Activation) -> None:
    """Refuse an activation that has no layer here."""
    if activation not in get_args(Activation):
        raise ArgumentError(f"activation is 'relu' or 'gelu', not {activation!r}")


def check_norm(norm: Norm) -> None:
    """Refuse a normalisation that has no layer here."""
    if norm not in get_args(Norm):
        raise ArgumentError(f"norm is 'batch', 'group', 'none' or 'shared', not {norm!r}")
