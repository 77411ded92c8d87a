"""The discrete residual networks that the continuous ones are compared with."""

from __future__ import annotations

from torch import nn

from ._units import (
    Activation,
    Residual,
    Stitch,
    check_activation,
    check_whole,
    head,
    residual_unit,
    stem,
)


def resnet(
    *,
    units: int,
    in_channels: int = 3,
    classes: int = 10,
    width: int = 16,
    stages: int = 3,
    first_stitch: bool = False,
    stitch_scale: float = 1.0,
    activation: Activation = "relu",
    head_activation: bool = False,
    momentum: float = 0.1,
) -> nn.Sequential:
    r"""The pre-activation ResNet beside `continuous_net`: every layer has weights of its own.

    .. math:: z_{k+1} = z_k + R_k(z_k), \qquad k = 0 \dots \text{units} - 1

    in each stage. With `first_stitch` it has the layers of a `continuous_net` with `units`
    buckets and as many parameters, and with the same weights it is the same function as that
    network with one Euler step per bucket and epsilon equal to `units`. Without, as in the paper,
    it lacks one residual unit: 73,402 + 97,216 `units` parameters by default against
    78,074 + 97,216 K, which are the 0.27 M of 2-2-2 and the 0.85 M (against 0.86 M) of 8-8-8.

    Args:
        units: residual units per stage.
        in_channels: of the images.
        classes: of the output, which has no softmax.
        width: the channels of the first stage.
        stages: how many.
        first_stitch: whether the first stage too begins with a stitch.
        stitch_scale: the weight of a stitch's residual beside its shortcut.
        activation: `"relu"` or `"gelu"`.
        head_activation: whether one follows the head's batch norm.
        momentum: the share of a batch in the running statistics.

    The baseline of Stateful ODE-Nets (Queiruga et al. 2021), after He et al. (2016).

    Example:
        >>> sum(p.numel() for p in resnet(units=8).parameters())
        851130
    """
    check_whole(units=units, in_channels=in_channels, classes=classes, width=width, stages=stages)
    check_activation(activation)
    net = nn.Sequential()
    net.add_module("stem", stem(in_channels, width, activation, momentum))
    channels = width
    for i in range(stages):
        out = width * 2**i
        if i > 0 or first_stitch:
            stitch = Stitch(
                channels,
                out,
                stride=1 if i == 0 else 2,
                scale=stitch_scale,
                activation=activation,
                momentum=momentum,
            )
            net.add_module(f"stitch{i + 1}", stitch)
        layers = (
            Residual(residual_unit(out, out, activation=activation, momentum=momentum))
            for _ in range(units)
        )
        net.add_module(f"stage{i + 1}", nn.Sequential(*layers))
        channels = out
    last = activation if head_activation else None
    net.add_module("head", head(channels, classes, last, momentum))
    return net


def wide_resnet(
    *,
    units: int = 8,
    alpha: int = 4,
    in_channels: int = 3,
    classes: int = 100,
    first_stitch: bool = True,
    activation: Activation = "relu",
    momentum: float = 0.1,
) -> nn.Sequential:
    """`resnet` with `16 * alpha` channels in its first stage; WideResNet-58 by default.

    Every stage begins with a stitch, so that it has as many parameters as `continuous_net` of
    the same width with `units` buckets; the published table too prints one number for both. That
    number, 13.63 M, agrees with ten classes, 13,628,362; with a hundred there are 13,651,492.

    Args:
        units: residual units per stage, besides the stitch.
        alpha: how many times wider than `resnet`.
        in_channels: of the images.
        classes: of the output, which has no softmax.
        first_stitch: whether the first stage too begins with a stitch.
        activation: `"relu"` or `"gelu"`.
        momentum: the share of a batch in the running statistics.

    The CIFAR-100 baseline of Stateful ODE-Nets (Queiruga et al. 2021), after Zagoruyko and
    Komodakis (2016).

    Example:
        >>> net = wide_resnet(units=1, alpha=2)
        >>> net.stage1[0].unit[2]
        Conv2d(32, 32, kernel_size=(3, 3), stride=(1, 1), padding=(1, 1), bias=False)
    """
    check_whole(alpha=alpha)
    return resnet(
        units=units,
        in_channels=in_channels,
        classes=classes,
        width=16 * alpha,
        first_stitch=first_stitch,
        activation=activation,
        momentum=momentum,
    )
