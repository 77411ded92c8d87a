"""Points in the plane, their labels and the part of it that is shown."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from matplotlib.lines import Line2D
from torch import Tensor

from continua._errors import ArgumentError, ShapeError
from continua._values import whole_number

from ._axes import look
from ._style import COLOURS, Axes

#: left, right, bottom, top
Extent = tuple[float, float, float, float]

#: how many points of a grid are evaluated at once
AT_ONCE = 8192


class Group(NamedTuple):
    """The samples that share a label."""

    name: str
    colour: str
    marker: str
    members: Tensor  # [B], true for each of them


def points(x: Tensor, what: str, dims: int = 2) -> Tensor:
    """Samples as they are drawn, if they are finite points `[B, dims]`."""
    if not isinstance(x, Tensor) or x.dim() != 2 or x.shape[1] != dims or not len(x):
        shape = list(x.shape) if isinstance(x, Tensor) else type(x).__name__
        raise ShapeError(f"{what} are points of shape [B, {dims}], not {shape}")
    return finite(x, what)


def finite(x: Tensor, what: str) -> Tensor:
    """A tensor in float64 and without its graph, if all of it is finite."""
    x = x.detach().cpu().double()
    wrong = int((~x.isfinite()).sum())
    if wrong:
        raise ArgumentError(f"{what} have {wrong} numbers that are not finite; leave them out")
    return x


def whole_numbers(labels: Tensor, count: int) -> Tensor:
    """One whole-number label per sample, `[B]`."""
    if not isinstance(labels, Tensor) or labels.numel() != count or len(labels) != count:
        shape = list(labels.shape) if isinstance(labels, Tensor) else type(labels).__name__
        raise ShapeError(f"{count} samples need labels of shape [{count}], not {shape}")
    flat = labels.detach().cpu().double().reshape(-1)
    wrong = flat[flat != flat.round()]
    if len(wrong):
        raise ArgumentError(f"labels are whole numbers, not {float(wrong[0]):g}")
    return flat.long()


def groups(labels: Tensor | None, count: int) -> list[Group]:
    """The samples by label; without labels one group that needs no name."""
    if labels is None:
        return [Group("", COLOURS[1], "o", torch.ones(count, dtype=torch.bool))]
    flat = whole_numbers(labels, count)
    # Labels from 0 on keep their colour, whichever of them are there.
    kinds = [int(k) for k in torch.unique(flat)]
    place = {k: k if kinds[0] >= 0 else i for i, k in enumerate(kinds)}
    return [Group(f"class {k}", *look(place[k]), flat == k) for k in kinds]


def colours(found: list[Group]) -> list[str]:
    """The colour of every sample."""
    out = [""] * len(found[0].members)
    for group in found:
        for i in group.members.nonzero().flatten().tolist():
            out[i] = group.colour
    return out


def mixed(count: int) -> list[int]:
    """An order in which no label lies on top of all others, the same every time."""
    return torch.randperm(count, generator=torch.Generator().manual_seed(0)).tolist()


def handles(found: list[Group], *, lines: bool = False) -> list[Line2D]:
    """What a legend shows of the groups."""
    if lines:
        return [Line2D([], [], color=g.colour, label=g.name) for g in found if g.name]
    return [
        Line2D(
            [], [], color=g.colour, marker=g.marker, linestyle="none", markersize=6, label=g.name
        )
        for g in found
        if g.name
    ]


def scatter(ax: Axes, x: Tensor, found: list[Group], size: float) -> None:
    """Points with the colour and the marker of their label, on top of all else."""
    for group in found:
        here = x[group.members]
        ax.scatter(
            here[:, 0].numpy(),
            here[:, 1].numpy(),
            s=size,
            c=group.colour,
            marker=group.marker,
            linewidths=0.4,
            edgecolors="white",
            zorder=4,
        )


def size_for(count: int) -> float:
    """The area of a marker with which so many can be told apart."""
    return min(max(2600 / count, 5.0), 30.0)


def checked_extent(extent: Extent) -> Extent:
    """The part of the plane, if it is one."""
    try:
        left, right, bottom, top = (float(v) for v in extent)
    except (TypeError, ValueError):
        raise ArgumentError(f"extent is (left, right, bottom, top), not {extent!r}") from None
    if not all(map(math.isfinite, (left, right, bottom, top))) or left >= right or bottom >= top:
        raise ArgumentError(
            f"extent is (left, right, bottom, top) with left < right and bottom < top, "
            f"not {extent!r}"
        )
    return left, right, bottom, top


def around(*parts: Tensor, margin: float = 0.12) -> Extent:
    """The part of the plane that holds all points, as high as it is wide."""
    all_points = torch.cat([part.reshape(-1, 2) for part in parts])
    low, high = all_points.amin(0), all_points.amax(0)
    half = float((high - low).max()) * (0.5 + margin) or 1.0
    x, y = ((low + high) / 2).tolist()
    return x - half, x + half, y - half, y + half


def grid(extent: Extent, resolution: int) -> tuple[Tensor, Tensor, Tensor]:
    """Both axes of a grid, `[R]`, and its points row by row, `[R * R, 2]`, in float64."""
    resolution = whole_number("resolution", resolution, 2)
    left, right, bottom, top = extent
    x = torch.linspace(left, right, resolution, dtype=torch.float64)
    y = torch.linspace(bottom, top, resolution, dtype=torch.float64)
    rows, columns = torch.meshgrid(y, x, indexing="ij")
    return x, y, torch.stack([columns.reshape(-1), rows.reshape(-1)], 1)


@torch.no_grad()
def evaluate(f: Callable[[Tensor], Tensor], where: Tensor, like: Tensor | None) -> Tensor:
    """A function at many points, given to it in the precision and on the device of `like`."""
    if like is None:
        where = where.to(torch.get_default_dtype())
    else:
        where = where.to(like.device, like.dtype)
    return torch.cat([f(part).detach().cpu().double() for part in torch.split(where, AT_ONCE)])


def show_plane(ax: Axes, extent: Extent) -> None:
    """Axes on this part of the plane, both in the same unit."""
    left, right, bottom, top = extent
    ax.set_xlim(left, right)
    ax.set_ylim(bottom, top)
    ax.set_aspect("equal")
    ax.grid(visible=False)
    # No number at the very end, where that of the next panel begins.
    ax.locator_params(nbins=5, prune="both")
