"""Image classifiers: residual networks whose stages are ODE blocks."""

from __future__ import annotations

from typing import Literal, get_args

from torch import Tensor, nn

from continua._errors import ArgumentError
from continua.block import ODEBlock
from continua.field import BasisChoice
from continua.solve import Solver

Activation = Literal["relu", "gelu"]
LAYERS: dict[str, type[nn.Module]] = {"relu": nn.ReLU, "gelu": nn.GELU}


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
        stitch_scale: the weight of a stitch's residual beside its shortcut.
        activation: `"relu"` or `"gelu"`.
        head_activation: whether one follows the head's batch norm.
        momentum: the share of a batch in the running statistics.

    Stateful ODE-Nets (Queiruga et al. 2021), whose CIFAR-10 network this is by default.

    Example:
        >>> import continua as ct
        >>> net = continuous_net(basis=ct.PiecewiseConstant(8), solver=ct.Euler(steps=8))
        >>> sum(p.numel() for p in net.parameters())
        855802
    """
    for name, value in (
        ("in_channels", in_channels),
        ("classes", classes),
        ("width", width),
        ("stages", stages),
    ):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ArgumentError(f"{name} is a whole number of at least 1, not {value!r}")
    if activation not in get_args(Activation):
        raise ArgumentError(f"activation is 'relu' or 'gelu', not {activation!r}")
    if not epsilon > 0:
        raise ArgumentError(f"epsilon, the length of the span, is positive, not {epsilon!r}")

    net = nn.Sequential()
    net.add_module(
        "stem",
        nn.Sequential(conv(in_channels, width), norm(width, momentum), LAYERS[activation]()),
    )
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
        )
        block = ODEBlock(
            residual_unit(out, out, activation=activation, momentum=momentum),
            basis,
            solver,
            state_basis=state_basis,
            span=(0.0, epsilon),
        )
        net.add_module(f"stitch{i + 1}", stitch)
        net.add_module(f"block{i + 1}", block)
        channels = out
    head: list[nn.Module] = [norm(channels, momentum)]
    if head_activation:
        head.append(LAYERS[activation]())
    # Averaging over whatever is left of the image: any input size works.
    head += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes)]
    net.add_module("head", nn.Sequential(*head))
    return net


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
    ):
        super().__init__()
        self.scale = scale
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or in_channels != out_channels:
            self.shortcut = nn.Sequential(
                conv(in_channels, out_channels, size=1, stride=stride),
                norm(out_channels, momentum),
            )
        self.residual = residual_unit(
            in_channels, out_channels, stride=stride, activation=activation, momentum=momentum
        )

    def forward(self, x: Tensor) -> Tensor:
        h: Tensor = self.residual(x)
        out: Tensor = self.shortcut(x) + self.scale * h
        return out


def residual_unit(
    in_channels: int,
    out_channels: int,
    *,
    stride: int = 1,
    activation: Activation,
    momentum: float,
) -> nn.Sequential:
    """BN-act-conv3x3-BN-act-conv3x3, without the sum."""
    return nn.Sequential(
        norm(in_channels, momentum),
        LAYERS[activation](),
        conv(in_channels, out_channels, stride=stride),
        norm(out_channels, momentum),
        LAYERS[activation](),
        conv(out_channels, out_channels),
    )


def conv(in_channels: int, out_channels: int, *, size: int = 3, stride: int = 1) -> nn.Conv2d:
    """A convolution without bias, the resolution kept at stride 1."""
    layer = nn.Conv2d(in_channels, out_channels, size, stride=stride, padding=size // 2, bias=False)
    nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
    return layer


def norm(channels: int, momentum: float) -> nn.BatchNorm2d:
    """Batch norm over images."""
    return nn.BatchNorm2d(channels, momentum=momentum)
