"""How states move through depth."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import torch
from matplotlib.collections import LineCollection
from matplotlib.colors import LinearSegmentedColormap, Normalize
from torch import Tensor

from continua._errors import ArgumentError, ShapeError
from continua.block import ODEBlock
from continua.field import Signal, copied, evaluated
from continua.solve import sides

from ._depth import checked
from ._plane import (
    Extent,
    around,
    checked_extent,
    colours,
    evaluate,
    finite,
    grid,
    groups,
    handles,
    mixed,
    points,
    scatter,
    show_plane,
    size_for,
)
from ._style import Axes, Figure, figure, styled

#: more coordinates would be too small
COORDINATES = 3

#: light enough for what lies on top
LIGHT = LinearSegmentedColormap.from_list("light", ["#FFFFFF", "#C9C9C9"])

#: states between the start and the end of a trajectory
BETWEEN = 80


@styled
def depth_flow(
    s: Sequence[float],
    z: Tensor,
    labels: Tensor | None = None,
    *,
    ends: Tensor | None = None,
    title: str = "",
) -> Figure:
    """Trajectories over depth, one panel per coordinate and one thin line per sample.

    Of more than three coordinates the first three are shown.

    Args:
        s: the depths, in a row.
        z: the states there, `[S, B, D]`, as `block.solve(x, save_at=s).z` gives them.
        labels: a class per sample, which colours its line.
        ends: the depth at which each sample ends, `[B]`, where they differ, as with
            `AdaptiveDepth`; then s are shares of it, and a dot marks the end.
        title: above the figure.

    Dissecting Neural ODEs (Massaroli et al. 2020) calls these depth flows.

    Example:
        >>> import continua as ct
        >>> block = ct.ODEBlock(torch.nn.Tanh(), solver=ct.RK4(steps=4))
        >>> s = [0.0, 0.5, 1.0]
        >>> figure = depth_flow(s, block.solve(torch.randn(9, 2), save_at=s).z)
        >>> [ax.get_ylabel() for ax in figure.axes]
        ['$z_1(s)$', '$z_2(s)$']
    """
    depths, states = checked_flow(s, z)
    count, shown = states.shape[1], min(states.shape[2], COORDINATES)
    found = groups(labels, count)
    colour = colours(found)
    order = mixed(count)
    fig = figure(4.8 if shown == 1 else 7.4, 3.2 if shown < 3 else 2.9)
    panels = fig.subplots(1, shown, sharex=True, squeeze=False)[0]
    across = torch.tensor(depths, dtype=torch.float64).unsqueeze(1).expand(-1, count)
    if ends is not None:
        across = across * checked_ends(ends, count)
    for i, ax in enumerate(panels):
        lines = [torch.stack([across[:, j], states[:, j, i]], 1).numpy() for j in order]
        ax.add_collection(
            LineCollection(
                lines,
                colors=[colour[j] for j in order],
                linewidths=0.9,
                alpha=opacity(count),
            ),
            autolim=True,
        )
        if ends is not None:
            ax.scatter(across[-1], states[-1, :, i], s=9, c=colour, zorder=3)
        ax.autoscale_view()
        ax.set_xlim(float(across.min()), float(across.max()) * (1 if ends is None else 1.02))
        ax.set_xlabel("depth s")
        ax.set_ylabel(f"$z_{i + 1}(s)$")
        ax.locator_params(nbins=5)
    if title:
        fig.suptitle(title, x=0.01, ha="left")
    if named := handles(found, lines=True):
        fig.legend(handles=named, loc="outside lower center", ncols=min(len(named), 6))
    return fig


@styled
def phase_flow(
    block: ODEBlock,
    x: Tensor,
    labels: Tensor | None = None,
    *,
    depths: Sequence[float] = (0.0, 0.5, 1.0),
    extent: Extent | None = None,
    control: Any = None,
    field: bool = True,
) -> Figure:
    r"""States in the plane at a few depths, over the vector field there.

    .. math:: \frac{dz}{ds} = f(s, z), \qquad z \in \mathbb{R}^2

    Each panel has the stream lines of the field at its depth, darker where the field is larger,
    the trajectories so far and the states. A field that depends on the sample (data control)
    cannot be drawn as one: then the trajectories stand alone.

    Args:
        block: with states in the plane; it is evaluated in evaluation mode and not changed.
        x: its inputs, `[B, 2]`.
        labels: a class per sample.
        depths: of the panels, along the span.
        extent: left, right, bottom and top of the plane; by default where the trajectories are.
        control: what the field sees as its input, as for `block.solve`.
        field: False leaves the vector field away.

    Example:
        >>> import continua as ct
        >>> from torch import nn
        >>> block = ct.ODEBlock(nn.Linear(2, 2), ct.Fourier(1), ct.RK4(steps=8))
        >>> figure = phase_flow(block, torch.randn(20, 2), depths=(0.0, 1.0))
        >>> [ax.get_title(loc="left") for ax in figure.axes[:2]]
        ['s = 0.00', 's = 1.00']
    """
    points(x, "inputs")
    found = groups(labels, len(x))
    twin = copied(checked(block)).eval()
    wanted = checked_depths(depths, block.span)
    start, end = block.span
    every = [start + (end - start) * i / BETWEEN for i in range(BETWEEN)] + [end]
    every = sorted({*every, *wanted}, reverse=end < start)
    with torch.no_grad():
        z = twin.solve(x, save_at=every, control=control).z
    states = finite(z, "states")  # [S, B, 2]
    view = around(states) if extent is None else checked_extent(extent)
    fields = [field_at(twin, s, x, control, view) for s in wanted] if field else []
    # At some depths the control of two samples may agree by chance.
    common = [f for f in fields if f is not None]
    drawn = common if len(common) == len(wanted) else []
    top = max((float(f.norm(dim=-1).max()) for f in drawn), default=0.0) or 1.0
    norm = Normalize(0, top)

    columns = 2 if len(wanted) == 4 else min(len(wanted), 3)
    rows = math.ceil(len(wanted) / columns)
    bar = 0.7 if drawn else 0.0
    fig = figure(2.25 * columns + 0.5 + bar, 2.35 * rows + 0.75)
    panels = fig.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    for ax in list(panels.flat)[len(wanted) :]:
        ax.remove()
    shown = list(panels.flat)[: len(wanted)]
    for i, (ax, s) in enumerate(zip(shown, wanted, strict=True)):
        show_plane(ax, view)
        if drawn:
            draw_field(ax, drawn[i], view, norm)
        n = every.index(s)
        draw_trails(ax, states[: n + 1], colours(found))
        scatter(ax, states[n], found, 0.7 * size_for(len(x)))
        ax.set_title(f"s = {s:.2f}")
        lowest = i + columns >= len(wanted)
        ax.tick_params(labelbottom=lowest)
        ax.set_xlabel("$z_1$" if lowest else "")
        ax.set_ylabel("$z_2$" if i % columns == 0 else "")
    if drawn:
        place = shown[columns - 1].inset_axes((1.06, 0, 0.05, 1))  # as high as the panel
        beside = fig.colorbar(shown[0].images[0], cax=place)
        beside.set_label("‖f(s, z)‖")
        beside.ax.grid(visible=False)
        beside.ax.locator_params(nbins=4)
    if named := handles(found):
        fig.legend(handles=named, loc="outside lower center", ncols=min(len(named), 6))
    return fig


def checked_flow(s: Sequence[float], z: Tensor) -> tuple[list[float], Tensor]:
    """Depths and states `[S, B, D]` in float64, if they belong together."""
    if not isinstance(z, Tensor) or z.dim() != 3 or 0 in z.shape:
        shape = list(z.shape) if isinstance(z, Tensor) else type(z).__name__
        raise ShapeError(f"states over depth have the shape [S, B, D], not {shape}")
    depths = [float(v) for v in s]
    if len(depths) != len(z):
        raise ShapeError(f"{len(depths)} depths, but states at {len(z)}; give each its own")
    if len(depths) < 2:
        raise ShapeError("a flow needs states at two depths or more, not at one")
    steps = [b - a for a, b in itertools.pairwise(depths)]
    if not (all(d > 0 for d in steps) or all(d < 0 for d in steps)):
        raise ArgumentError("the depths of a flow increase, or decrease, all the way")
    return depths, finite(z, "states")


def checked_ends(ends: Tensor, count: int) -> Tensor:
    """The depth at which each sample ends, in float64."""
    if not isinstance(ends, Tensor) or ends.shape != (count,):
        shape = list(ends.shape) if isinstance(ends, Tensor) else type(ends).__name__
        raise ShapeError(f"ends are one depth per sample, [{count}], not {shape}")
    return finite(ends, "ends")


def checked_depths(depths: Sequence[float], span: tuple[float, float]) -> list[float]:
    """The depths of panels, along the span."""
    start, end = span
    wanted = [float(s) for s in depths]
    if not wanted:
        raise ArgumentError("no depths; give at least one")
    for s in wanted:
        if not min(span) <= s <= max(span):
            raise ArgumentError(f"depth {s:g} lies outside the block's span ({start:g}, {end:g})")
    if wanted != sorted(set(wanted), reverse=end < start):
        raise ArgumentError(f"depths run along the span ({start:g}, {end:g}), each once: sort them")
    return wanted


def opacity(count: int) -> float:
    """How opaque a line is, so that those below many others are seen."""
    return min(max(30 / count, 0.25), 0.85)


FINE = 48


def field_at(block: ODEBlock, s: float, x: Tensor, control: Any, view: Extent) -> Tensor | None:
    """The field on a grid, `[R, R, 2]`; None if it is another one for every sample."""
    start, end = block.span
    module = block.at(s, sides(start, end)[int(s == end)])
    _, _, where = grid(view, FINE)
    depth = torch.tensor(s, dtype=x.dtype, device=x.device)
    seen = x if control is None else control

    def as_seen_by(i: int) -> Tensor:
        return evaluate(
            lambda z: evaluated(module, depth, z, repeated(seen, i, len(x), len(z))), where, x
        )

    first = as_seen_by(0)
    if first.shape != where.shape:
        raise ShapeError(f"the field maps states [B, 2] to {list(first.shape[1:])} each, not to 2")
    # Two samples far from each other tell whether the field depends on them.
    i = int((x - x[0]).norm(dim=1).argmax())
    if not torch.equal(first, as_seen_by(i)):
        return None
    return finite(first, "fields").reshape(FINE, FINE, 2)


def repeated(control: Any, i: int, samples: int, count: int) -> Any:
    """The control of one sample, for many states."""
    if isinstance(control, Tensor) and control.dim() and len(control) == samples:
        return control[i : i + 1].expand(count, *control.shape[1:])
    if isinstance(control, Signal) and control.values.dim() > 1:
        values = control.values[:, i : i + 1]
        return Signal(control.s, values.expand(-1, count, *values.shape[2:]), control.kind)
    return control


def draw_field(ax: Axes, field: Tensor, view: Extent, norm: Normalize) -> None:
    """Magnitude as a light image, directions as stream lines."""
    x, y, _ = grid(view, len(field))
    ax.imshow(
        field.norm(dim=-1).numpy(),
        extent=view,
        origin="lower",
        cmap=LIGHT,
        norm=norm,
        interpolation="bilinear",
        zorder=0,
    )
    if bool((field != 0).any()):
        u, v = field.unbind(-1)
        ax.streamplot(
            x.numpy(),
            y.numpy(),
            u.numpy(),
            v.numpy(),
            color="#8A8A8A",
            density=0.65,
            linewidth=0.6,
            arrowsize=0.7,
            zorder=1,
        )


def draw_trails(ax: Axes, states: Tensor, colour: list[str]) -> None:
    """The way of every sample so far, `[S, B, 2]`."""
    if len(states) < 2:
        return
    order = mixed(states.shape[1])
    ax.add_collection(
        LineCollection(
            [states[:, j].numpy() for j in order],
            colors=[colour[j] for j in order],
            linewidths=0.8,
            alpha=0.6 * opacity(states.shape[1]) + 0.1,
            zorder=3,
        ),
        autolim=False,
    )
