"""Image classifiers that are one flow each, with four ways to give it room."""

from __future__ import annotations

from typing import Literal, get_args

from torch import nn

from continua._errors import ArgumentError
from continua.block import ODEBlock
from continua.field import BasisChoice, HigherOrder, InputLayer, ZeroAugment
from continua.gradient import Adjoint, Backprop, Gradient
from continua.solve import Dopri5, Solver

from ._units import check_epsilon, check_whole

Augmentation = Literal["vanilla", "zero", "input-layer", "second-order"]
Place = Literal["first", "last"]


def augmented_classifier(
    *,
    kind: Augmentation = "input-layer",
    in_channels: int = 3,
    classes: int = 10,
    width: int = 42,
    pooled: int | None = None,
    zeros: Place = "first",
    basis: BasisChoice | None = None,
    solver: Solver | None = None,
    epsilon: float = 1.0,
    gradient: Gradient | None = None,
) -> nn.Sequential:
    r"""An image classifier of one ODE block, its state augmented in one of four ways.

    .. math:: \frac{dz}{ds} = f(z), \qquad s \in [0, \epsilon]

    with f = GN-conv3x3-softplus-conv3x3-softplus-GN-conv1x1, whose group norms have as many
    groups as channels. The kinds differ in where z starts:

    - `"vanilla"`: z(0) = x, the image; f has `width` channels inside.
    - `"zero"`: z(0) = [0, x], zeros up to `width` channels (ANODE).
    - `"input-layer"`: z(0) = h(x), a convolution to `width` channels (IL-NODE).
    - `"second-order"`: z = [q, v] with dq/ds = v and dv/ds = f(z), `width` / 2 channels each;
      with zeros first, positions start at zero and velocities at h(x).

    A 1x1 convolution, the mean over a 4x4 grid and a linear layer read z at the end. Widths of
    42, and 62 for the vanilla kind, are the paper's for CIFAR-10; 32 and 48 give its counts of
    parameters for MNIST, whose settings it does not state.

    Args:
        kind: one of the four.
        in_channels: of the images.
        classes: of the output, which has no softmax.
        width: channels of f inside, and of the state unless it is the image.
        pooled: channels that are averaged over the grid; None takes those of the image for the
            vanilla kind and a seventh of `width` for the others, as the paper does.
        zeros: whether zeros come before what they stand beside, as in the paper's code, or
            after; for the second order `"last"` starts with positions h(x) at rest.
        basis: how the weights of f vary with depth; None for constant ones.
        solver: of the block; None takes `Dopri5` with tolerances of 1e-4.
        epsilon: the length of the span.
        gradient: how the block is differentiated; None is the adjoint where the solver chooses
            its steps, and back-propagation on a fixed grid.

    Dissecting Neural ODEs (Massaroli et al. 2020), table 1.

    Example:
        >>> net = augmented_classifier(kind="second-order")
        >>> sum(p.numel() for p in net.parameters())
        34618
    """
    check_whole(in_channels=in_channels, classes=classes, width=width)
    check_kind(kind, in_channels, width)
    check_epsilon(epsilon)
    if zeros not in get_args(Place):
        raise ArgumentError(f"zeros is 'first' or 'last', not {zeros!r}")
    vanilla, halves = kind == "vanilla", kind == "second-order"
    state = in_channels if vanilla else width
    if pooled is None:
        pooled = in_channels if vanilla else max(width // 7, 1)
    check_whole(pooled=pooled)
    solver = Dopri5(1e-4, 1e-4) if solver is None else solver
    if gradient is None:
        gradient = Adjoint() if solver.evaluations((0.0, epsilon)) is None else Backprop()

    stem = nn.Sequential()
    if kind in ("input-layer", "second-order"):
        features = width // 2 if halves else width
        h = nn.Conv2d(in_channels, features, 3, padding=1, bias=False)
        stem.append(InputLayer(h))
    if kind in ("zero", "second-order"):
        stem.append(ZeroAugment(width // 2 if halves else width - in_channels, place=zeros))
    unit = nn.Sequential(
        nn.GroupNorm(state, state),
        nn.Conv2d(state, width, 3, padding=1, bias=False),
        nn.Softplus(),
        nn.Conv2d(width, width, 3, padding=1, bias=False),
        nn.Softplus(),
        nn.GroupNorm(width, width),
        nn.Conv2d(width, width // 2 if halves else state, 1),
    )
    field = HigherOrder(unit) if halves else unit
    net = nn.Sequential()
    net.add_module("stem", stem)
    net.add_module("block", ODEBlock(field, basis, solver, gradient, span=(0.0, epsilon)))
    net.add_module(
        "head",
        nn.Sequential(
            nn.Conv2d(state, pooled, 1),
            nn.AdaptiveAvgPool2d(4),
            nn.Flatten(),
            nn.Linear(16 * pooled, classes),
        ),
    )
    return net


def check_kind(kind: Augmentation, in_channels: int, width: int) -> None:
    """Refuse a kind that there is not, or a width that it cannot have."""
    if kind not in get_args(Augmentation):
        known = ", ".join(map(repr, get_args(Augmentation)))
        raise ArgumentError(f"kind is one of {known}, not {kind!r}")
    if kind == "zero" and width <= in_channels:
        raise ArgumentError(
            f"width={width} leaves no room for zeros beside the {in_channels} channels of the "
            "image; take more, or kind='vanilla'"
        )
    if kind == "second-order" and width % 2:
        raise ArgumentError(
            f"width={width} cannot be halved into positions and velocities; take an even number"
        )
