"""Image classifiers: residual networks whose stages are ODE blocks."""

from __future__ import annotations

from typing import TypedDict, Unpack

from torch import nn

from continua._errors import ArgumentError
from continua.basis import Constant
from continua.block import ODEBlock
from continua.field import BasisChoice
from continua.gradient import Gradient
from continua.solve import Solver

from ._units import (
    Activation,
    Norm,
    Stitch,
    check_activation,
    check_epsilon,
    check_norm,
    check_whole,
    head,
    residual_unit,
    stem,
)


def continuous_net(
    *,
    basis: BasisChoice,
    solver: Solver,
    in_channels: int = 3,
    classes: int = 10,
    width: int = 16,
    stages: int = 3,
    state_basis: BasisChoice | None = None,
    epsilon: float = 1.0,
    stitch_scale: float = 1.0,
    activation: Activation = "relu",
    head_activation: bool = False,
    momentum: float = 0.1,
    norm: Norm = "batch",
    skip_init: bool = False,
    gradient: Gradient | None = None,
) -> nn.Sequential:
    r"""A residual network for images, each stage of which is continuous in depth.

    A stem, then per stage a stitch, which sets resolution and width, and an ODE block

    .. math:: \frac{dz}{ds} = R(z;\, \theta(s), \sigma(s)), \qquad s \in [0, \epsilon]

    whose field is the pre-activation residual unit R = BN-act-conv-BN-act-conv without biases,
    then the head. Stage i has `width * 2**i` channels; every stage but the first halves the
    resolution. With Euler, buckets, one step per bucket and :math:`\epsilon` equal to their
    number it is a pre-activation ResNet. Weights start as in that paper, with a constant θ(s).

    Args:
        basis: how the weights of the residual units vary with depth.
        solver: of every block.
        in_channels: of the images.
        classes: of the output, which has no softmax.
        width: the channels of the first stage.
        stages: how many; three is the paper's deep network, two and one its shallow ones.
        state_basis: of the batch-norm statistics; None takes `basis`.
        epsilon: the length of each block's span.
        stitch_scale: the weight of a stitch's residual beside its shortcut; the paper takes
            epsilon over the number of steps.
        activation: `"relu"` or `"gelu"`.
        head_activation: whether one follows the head's batch norm.
        momentum: the share of a batch in the running statistics.
        norm: inside the residual units of blocks and stitches: `"batch"`, whose statistics are
            functions of depth; `"shared"`, batch norm with one set of statistics for all depths
            of a block, its scale and shift still functions of depth; `"group"`, group norm of
            up to 8 groups; or `"none"`. Stem, shortcuts and head keep batch norm.
        skip_init: whether a scalar function of depth that starts at zero multiplies the residual
            unit of every block, which then starts as the identity.
        gradient: how every block is differentiated; None is back-propagation.

    Stateful ODE-Nets (Queiruga et al. 2021), whose CIFAR-10 network this is by default.

    Example:
        >>> import continua as ct
        >>> net = continuous_net(basis=ct.PiecewiseConstant(8), solver=ct.Euler(steps=8))
        >>> sum(p.numel() for p in net.parameters())
        855802
    """
    check_whole(in_channels=in_channels, classes=classes, width=width, stages=stages)
    check_activation(activation)
    check_epsilon(epsilon)
    check_norm(norm)
    if norm == "shared":
        if state_basis is not None:
            raise ArgumentError(
                f"norm='shared' has one set of statistics for all depths, so state_basis="
                f"{state_basis!r} has no use; leave it out, or use norm='batch'"
            )
        state_basis = Constant()

    net = nn.Sequential()
    net.add_module("stem", stem(in_channels, width, activation, momentum))
    channels = width
    for i in range(stages):
        out = width * 2**i
        stitch = Stitch(
            channels,
            out,
            stride=1 if i == 0 else 2,
            scale=stitch_scale,
            activation=activation,
            momentum=momentum,
            norm=norm,
        )
        unit = residual_unit(
            out, out, activation=activation, momentum=momentum, norm=norm, skip_init=skip_init
        )
        block = ODEBlock(
            unit, basis, solver, gradient, state_basis=state_basis, span=(0.0, epsilon)
        )
        net.add_module(f"stitch{i + 1}", stitch)
        net.add_module(f"block{i + 1}", block)
        channels = out
    last = activation if head_activation else None
    net.add_module("head", head(channels, classes, last, momentum))
    return net


class ImageOptions(TypedDict, total=False):
    """What the shallow networks take besides basis and solver: see `continuous_net`."""

    in_channels: int
    classes: int
    width: int
    state_basis: BasisChoice | None
    epsilon: float
    stitch_scale: float
    momentum: float
    norm: Norm
    skip_init: bool
    gradient: Gradient | None


def continuous_net_small(
    *, basis: BasisChoice, solver: Solver, **options: Unpack[ImageOptions]
) -> nn.Sequential:
    """The shallow network for CIFAR: two stages, GELU, an activation in the head.

    The head averages over all that is left of the image. The reference pools 8x8 windows and
    hands each to the linear layer; that is the same where 8x8 pixels are left, here for images
    of 15x15 or 16x16. For 32x32 the reference's linear layer is four times as wide.

    Args:
        basis: how the weights of the residual units vary with depth.
        solver: of both blocks.
        options: any other argument of `continuous_net` but `stages` and the activations.

    Stateful ODE-Nets (Queiruga et al. 2021).

    Example:
        >>> import continua as ct
        >>> net = continuous_net_small(basis=ct.PiecewiseConstant(4), solver=ct.Euler(steps=4))
        >>> sum(p.numel() for p in net.parameters())
        112954
    """
    return continuous_net(
        basis=basis, solver=solver, stages=2, activation="gelu", head_activation=True, **options
    )


def continuous_net_mnist(
    *, basis: BasisChoice, solver: Solver, **options: Unpack[ImageOptions]
) -> nn.Sequential:
    """The shallow network for MNIST: one stage, grey images, GELU, an activation in the head.

    The head averages over all that is left of the image. The reference pools 8x8 windows and
    hands each to the linear layer; that is the same where 8x8 pixels are left, here for images
    of 8x8, such as scikit-learn's digits. For 28x28 the reference has nine windows, which leave
    out the last four rows and columns.

    Args:
        basis: how the weights of the residual unit vary with depth.
        solver: of the block.
        options: any other argument of `continuous_net` but `stages` and the activations.

    Stateful ODE-Nets (Queiruga et al. 2021).

    Example:
        >>> import continua as ct
        >>> net = continuous_net_mnist(basis=ct.PiecewiseConstant(4), solver=ct.Euler(steps=4))
        >>> sum(p.numel() for p in net.parameters())
        23738
    """
    options.setdefault("in_channels", 1)
    return continuous_net(
        basis=basis, solver=solver, stages=1, activation="gelu", head_activation=True, **options
    )
