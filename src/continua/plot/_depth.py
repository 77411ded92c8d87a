"""Weights and state as functions of depth."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from continua._errors import ArgumentError
from continua.basis import Basis, Point, quadrature, sample
from continua.block import ODEBlock
from continua.field import listed
from continua.field import tensor as stack_of

from ._style import COLOURS, DASHES, SOURCE, Axes, Figure, figure, styled

#: points inside a cell on which the functions are not constant
INSIDE = 24


def weights(
    block: ODEBlock,
    others: Mapping[str, ODEBlock] | None = None,
    *,
    tensor: str | None = None,
    count: int = 4,
    label: str = "source",
) -> Figure:
    r"""A few scalars of one weight over depth, before and after a change of basis.

    .. math:: \theta_i(s) = \sum_k \phi_k(s)\, \theta_{ik}

    Those that vary most over depth in the first block are shown, one panel each. Where a basis
    jumps, both sides of the jump are drawn at the same depth.

    Args:
        block: the block to start from.
        others: the same block after `refine` or `compress`, under the names to show.
        tensor: the name of a parameter in `block.field`; by default the one with most scalars.
        count: how many scalars.
        label: the name of the first block.

    Example:
        >>> import continua as ct
        >>> from torch import nn
        >>> fine = ct.ODEBlock(nn.Linear(2, 2), ct.PiecewiseConstant(8), init="independent")
        >>> small = ct.compress(fine, ct.PiecewiseLinear(4))
        >>> len(weights(fine, {"4 hats": small}, tensor="weight").axes)
        4
    """
    name = chosen(checked(block).expansion.weights, block, tensor, "parameter")
    return panels(block, others or {}, name, count, label, title="weight θ(s)", relative=False)


def state(
    block: ODEBlock,
    others: Mapping[str, ODEBlock] | None = None,
    *,
    tensor: str | None = None,
    count: int = 4,
    label: str = "source",
) -> Figure:
    r"""A few scalars of the module's state over depth, a running variance for instance.

    .. math:: \sigma_i(s) = \sum_k \phi_k(s)\, \sigma_{ik}

    Those that vary most over depth, relative to their mean, are shown, as the solver reads them.

    Args:
        block: the block to start from.
        others: the same block after `refine` or `compress`, under the names to show.
        tensor: the name of a buffer in `block.field`; by default the first running variance.
        count: how many scalars.
        label: the name of the first block.

    Example:
        >>> import continua as ct
        >>> from torch import nn
        >>> block = ct.ODEBlock(nn.BatchNorm1d(6), ct.PiecewiseConstant(8), ct.Euler(steps=8))
        >>> len(state(block, count=2).axes)
        2
    """
    variances = [n for n in checked(block).expansion.state if n.endswith("running_var")]
    if tensor is None and variances:
        tensor = variances[0]
    name = chosen(block.expansion.state, block, tensor, "buffer")
    kind = "running variance" if name.endswith("running_var") else "state"
    return panels(block, others or {}, name, count, label, title=f"{kind} σ(s)", relative=True)


def checked(block: ODEBlock) -> ODEBlock:
    """The block, if it is one."""
    if not isinstance(block, ODEBlock):
        raise ArgumentError(
            f"{type(block).__name__} is not an ODEBlock; take one of those in the model"
        )
    return block


def chosen(bases: Mapping[str, Basis], block: ODEBlock, name: str | None, kind: str) -> str:
    """The tensor to draw: the one asked for, or the largest."""
    if not bases:
        raise ArgumentError(f"the block has no {kind} that varies with depth")
    if name is None:
        return max(bases, key=lambda n: stack_of(block.field, n).numel())
    if name not in bases:
        raise ArgumentError(f"the block has no {kind} {name!r}; it has {listed(bases)}")
    return name


@styled
def panels(
    block: ODEBlock,
    others: Mapping[str, ODEBlock],
    name: str,
    count: int,
    label: str,
    *,
    title: str,
    relative: bool,
) -> Figure:
    """One panel per scalar, one line per block."""
    if count < 1:
        raise ArgumentError(f"count is at least 1, not {count!r}")
    for key, other in others.items():
        if name not in checked(other).expansion.bases:
            raise ArgumentError(f"{key!r} has no tensor {name!r}: is it the same block?")
    scalars = most_varying(block, name, count, relative)
    columns = min(len(scalars), 2)
    rows = math.ceil(len(scalars) / columns)
    fig = figure(3.9 * columns, 0.9 + 1.75 * rows)
    grid = fig.subplots(rows, columns, sharex=True, squeeze=False)
    for ax, i in itertools.zip_longest(grid.flat, scalars):
        if i is None:
            ax.remove()
            continue
        draw(ax, block, others, name, i, label)
    for ax in grid[-1]:
        ax.set_xlabel("depth s")
    for ax in grid[:, 0]:
        ax.set_ylabel(title)
    fig.legend(
        *grid[0, 0].get_legend_handles_labels(),
        loc="outside upper center",
        ncols=2 if columns > 1 else 1,
    )
    return fig


def draw(
    ax: Axes, block: ODEBlock, others: Mapping[str, ODEBlock], name: str, i: int, label: str
) -> None:
    """One scalar of all blocks; the first lies underneath, wide enough to be seen beside others."""
    s, values = curve(block, name, i)
    ax.plot(s, values, color=SOURCE, linewidth=5, alpha=0.4, label=label)
    looks = zip(itertools.cycle(COLOURS), itertools.cycle(DASHES), strict=False)
    for (key, other), (colour, dashes) in zip(others.items(), looks, strict=False):
        s, values = curve(other, name, i)
        ax.plot(s, values, color=colour, linestyle=dashes, label=key)
    shape = stack_of(block.field, name).shape[1:]
    index = ", ".join(str(int(k)) for k in torch.unravel_index(torch.tensor(i), shape))
    ax.set_title(f"{name}[{index}]")
    ax.margins(x=0.01)
    ax.locator_params(axis="y", nbins=5)


def most_varying(block: ODEBlock, name: str, count: int, relative: bool) -> list[int]:
    """The flat indices of the scalars with the largest deviation from their mean over depth."""
    basis = block.expansion.bases[name]
    s, w = quadrature(basis)
    values = read(block, name, [Point(float(u)) for u in s])  # [Q, n]
    mean = w @ values
    deviation = (w @ (values - mean) ** 2).sqrt()
    if relative:
        deviation = deviation / mean.abs().clamp(min=1e-12)
    return deviation.argsort(descending=True, stable=True)[:count].tolist()


def curve(block: ODEBlock, name: str, i: int) -> tuple[list[float], list[float]]:
    """Depths and values of one scalar, every cell from end to end.

    A breakpoint is there twice, as the end of one cell and the start of the next: a jump is
    vertical, whatever the resolution.
    """
    points = cell_points(block.expansion.bases[name])
    low, high = sorted(block.span)
    depths = [low + (high - low) * point.depth for point in points]
    return depths, read(block, name, points)[:, i].tolist()


def cell_points(basis: Basis, between: int = INSIDE) -> list[Point]:
    """The ends of every cell, seen from inside it, and points between them unless it is level."""
    points: list[Point] = []
    for a, b in itertools.pairwise(basis.breakpoints):
        inside = between if basis.degree_on(b - a) > 0 else 0
        points.append(Point(a, "right"))
        points += [Point(a + (b - a) * i / (inside + 1)) for i in range(1, inside + 1)]
        points.append(Point(b, "left"))
    return points


def read(block: ODEBlock, name: str, points: Sequence[Point]) -> Tensor:
    """A tensor at some points of the basis, its scalars in a row: `[P, n]` in float64."""
    stack = stack_of(block.field, name).detach().cpu().double()
    shape = stack.shape[1:]
    values = sample(block.expansion.bases[name], points) @ stack.reshape(len(stack), -1)
    rule = block.expansion.constraints.get(name)
    if rule is not None:
        values = rule(values.reshape(-1, *shape)).reshape(len(points), -1)
    return values
