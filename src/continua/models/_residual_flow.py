"""Residual flows: image classifiers whose weights are nearly all inside their ODE blocks."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import nn

from continua._errors import ArgumentError
from continua.block import ODEBlock
from continua.field import BasisChoice, DepthConcat, ZeroAugment
from continua.gradient import Gradient
from continua.solve import Solver

from ._units import check_epsilon, check_whole, conv


def residual_flow(
    *,
    basis: BasisChoice,
    solver: Solver,
    in_channels: int = 3,
    classes: int = 10,
    widths: Sequence[int] = (64, 128, 212),
    stem_stride: int = 1,
    append_time: bool = False,
    epsilon: float = 1.0,
    gradient: Gradient | None = None,
) -> nn.Sequential:
    r"""An image classifier of successive flows of bottleneck residual units.

    .. math:: \frac{dz}{ds} = R(z;\, \theta(s)), \qquad s \in [0, \epsilon]

    with R = conv1x1-GN-ReLU-conv3x3-GN-ReLU-conv1x1, a quarter of the channels inside. Between two
    flows the mean over 2x2 pixels halves the resolution and zeros fill up the channels, so that
    nearly all weights belong to the flows: about 70 thousand with the widths by default.

    The basis, the solver and the span make it one model or another:

    - `Constant()`: the autonomous neural ODE; with `append_time` the depth is one more channel of
      every convolution's input.
    - `PiecewiseConstant(d)`, `Fourier(d, period=2 * math.pi)`, `Legendre(d)`: weights in buckets,
      trigonometric ones with whole frequencies, polynomials.
    - `Constant()` with `Euler(steps=L)` and `epsilon=L`: a residual network of L layers that
      share their weights; `PiecewiseConstant(L)` gives each layer its own.

    Group norm sees each sample by itself, so gradients that evaluate the field again are right in
    training too.

    Args:
        basis: how the weights of the flows vary with depth.
        solver: of every block; `steps=L` is the discretisation dt = epsilon / L.
        in_channels: of the images.
        classes: of the output, which has no softmax.
        widths: channels of each flow, none less than the one before, each a multiple of four.
        stem_stride: of the first convolution; 2 halves the resolution of every flow. The kernel
            is 3x3, from a stride of 3 on of 2 * stride - 1 pixels, so that it sees every pixel.
        append_time: whether convolutions see the depth.
        epsilon: the length of each block's span.
        gradient: how every block is differentiated; None is back-propagation.

    Time Dependence in Non-Autonomous Neural ODEs (Davis et al. 2020), which leaves widths,
    norms and the way between flows open: they are ours.

    Example:
        >>> import continua as ct
        >>> net = residual_flow(basis=ct.Fourier(10), solver=ct.Euler(steps=10))
        >>> sum(p.numel() for p in net.parameters())
        1472667
    """
    check_whole(in_channels=in_channels, classes=classes, stem_stride=stem_stride)
    check_epsilon(epsilon)
    check_widths(widths)
    net = nn.Sequential()
    first = conv(in_channels, widths[0], size=max(3, 2 * stem_stride - 1), stride=stem_stride)
    net.add_module("stem", nn.Sequential(first, grouped(widths[0]), nn.ReLU()))
    for i, width in enumerate(widths):
        if i > 0:
            down = nn.Sequential(nn.AvgPool2d(2))
            if width > widths[i - 1]:
                down.append(ZeroAugment(width - widths[i - 1]))
            net.add_module(f"down{i}", down)
        field = bottleneck(width, append_time)
        block = ODEBlock(field, basis, solver, gradient, span=(0.0, epsilon))
        net.add_module(f"flow{i + 1}", block)
    net.add_module(
        "head",
        nn.Sequential(
            grouped(widths[-1]), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
            nn.Linear(widths[-1], classes),
        ),
    )  # fmt: skip
    return net


def bottleneck(width: int, append_time: bool) -> nn.Module:
    """conv1x1-GN-ReLU-conv3x3-GN-ReLU-conv1x1, without the sum."""
    inner, time = width // 4, int(append_time)
    layers = (
        nn.Sequential(conv(width + time, inner, size=1), grouped(inner), nn.ReLU()),
        nn.Sequential(conv(inner + time, inner), grouped(inner), nn.ReLU()),
        conv(inner + time, width, size=1),
    )
    return DepthConcat(*layers) if append_time else nn.Sequential(*layers)


def grouped(channels: int) -> nn.GroupNorm:
    """Group norm of up to eight groups."""
    return nn.GroupNorm(math.gcd(8, channels), channels)


def check_widths(widths: Sequence[int]) -> None:
    """Refuse widths that leave no quarter, or that would have to throw channels away."""
    if isinstance(widths, int) or not widths:
        raise ArgumentError(
            f"widths are the channels of each flow, such as (64, 128), not {widths!r}"
        )
    for before, width in zip((1, *widths), widths, strict=False):
        check_whole(widths=width)
        if width % 4:
            raise ArgumentError(f"a width of {width} has no whole quarter; take a multiple of four")
        if width < before:
            raise ArgumentError(
                f"widths do not shrink, as {tuple(widths)} does at {width}: zeros fill up channels"
            )
