"""Data moving through depth."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from matplotlib import rc_context
from matplotlib.animation import PillowWriter
from matplotlib.collections import LineCollection
from torch import Tensor

from continua._errors import ArgumentError, FileError, ShapeError
from continua._values import whole_number
from continua.files import write_whole

from ._flow import checked_flow, opacity
from ._plane import Group, around, colours, groups, handles, mixed, show_plane, size_for
from ._style import RC, figure

#: how long the last picture stands, in seconds
STAND = 1.0

#: the share of the depth that a trail reaches back
TRAIL = 0.3


def animate(
    s: Sequence[float],
    z: Tensor,
    labels: Tensor | None,
    path: str | Path,
    *,
    seconds: float = 4.0,
    fps: int = 20,
) -> Path:
    """Points of the plane moving through depth with their trails, as a GIF.

    Between the given depths states move on straight lines. The file is written whole or not at
    all.

    Args:
        s: the depths, in a row.
        z: the states there, `[S, B, 2]`.
        labels: a class per sample, or None.
        path: of the file, which ends in `.gif`.
        seconds: how long the movement takes; then the last picture stands for a second.
        fps: pictures per second.

    Example:
        >>> import continua as ct
        >>> block = ct.ODEBlock(torch.nn.Tanh(), solver=ct.RK4(steps=4))
        >>> s = [0.0, 0.5, 1.0]
        >>> z = block.solve(torch.randn(9, 2), save_at=s).z
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     animate(s, z, None, f"{folder}/flow.gif", seconds=0.2).name
        'flow.gif'
    """
    depths, states = checked_flow(s, z)
    if states.shape[2] != 2:
        raise ShapeError(f"states that move in the plane are [S, B, 2], not {list(z.shape)}")
    found = groups(labels, states.shape[1])
    place = Path(path)
    if place.suffix.lower() != ".gif":
        raise ArgumentError(f"an animation is written as a .gif, not as {place.name!r}")
    if not 0 < seconds < float("inf"):
        raise ArgumentError(f"seconds is a positive number, not {seconds!r}")
    # The format counts hundredths of a second, and most viewers show no more than 50 a second.
    fps = whole_number("fps", fps, 1, 50)
    if not place.parent.is_dir():
        raise FileError(f"cannot write {place}: the folder {place.parent} does not exist")
    with rc_context(RC), tempfile.TemporaryDirectory() as folder:
        draft = Path(folder, "flow.gif")
        draw(depths, states, found, draft, max(round(seconds * fps), 2), fps)
        write_whole(place, draft.read_bytes())
    return place


def draw(
    depths: list[float], states: Tensor, found: list[Group], path: Path, frames: int, fps: int
) -> None:
    """The pictures, one after another into a file."""
    start, end = depths[0], depths[-1]
    count = states.shape[1]
    order = mixed(count)
    colour = colours(found)
    view = around(states)
    fig = figure(4.2, 4.4)
    ax = fig.subplots()
    show_plane(ax, view)
    ax.set_xlabel("$z_1$")
    ax.set_ylabel("$z_2$")
    trails = LineCollection(
        [], colors=[colour[j] for j in order], linewidths=1.0, alpha=0.7 * opacity(count)
    )
    ax.add_collection(trails, autolim=False)
    clouds = [
        ax.scatter(
            [],
            [],
            s=size_for(count),
            c=group.colour,
            marker=group.marker,
            linewidths=0.4,
            edgecolors="white",
            zorder=3,
        )
        for group in found
    ]
    if named := handles(found):
        fig.legend(handles=named, loc="outside lower center", ncols=min(len(named), 4))
    ax.set_title("depth s")
    fig.draw_without_rendering()
    fig.set_layout_engine("none")  # nothing moves but the data
    writer = PillowWriter(fps=fps)
    with writer.saving(fig, str(path), dpi=100):
        for n in range(frames):
            share = n / (frames - 1)
            now = between(depths, states, start + (end - start) * share)  # [B, 2]
            back = max(share - TRAIL, 0.0)
            trail = [
                between(depths, states, start + (end - start) * (back + (share - back) * i / 12))
                for i in range(12)
            ]
            way = torch.stack([*trail, now], 1).numpy()  # [B, 13, 2]
            trails.set_segments([way[j] for j in order])
            for group, cloud in zip(found, clouds, strict=True):
                cloud.set_offsets(now[group.members].numpy())
            ax.set_title(f"depth s = {start + (end - start) * share:.2f}")
            writer.grab_frame()
        for _ in range(round(STAND * fps)):
            writer.grab_frame()


def between(depths: list[float], states: Tensor, s: float) -> Tensor:
    """The states at a depth, on straight lines between those given."""
    forward = depths[-1] > depths[0]
    i = int(np.searchsorted(depths if forward else [-d for d in depths], s if forward else -s))
    i = min(max(i, 1), len(depths) - 1)
    share = (s - depths[i - 1]) / (depths[i] - depths[i - 1])
    return torch.lerp(states[i - 1], states[i], share)
