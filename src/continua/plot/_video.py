"""Clips beside each other, frame by frame or moving."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.animation import PillowWriter
from matplotlib.patches import Rectangle
from numpy.typing import NDArray
from torch import Tensor

from continua._errors import ArgumentError, FileError, ShapeError
from continua._values import whole_number
from continua.files import write_whole

from ._axes import shortened
from ._style import COLOURS, RC, Axes, Figure, figure, styled

#: more frames would be too small; of a longer clip every second or third is shown
FRAMES = 20
ROWS = 8
LETTERS = 18
#: inches of one frame, and of the names beside them
CELL, MARGIN = 0.52, 1.35
#: what stands above the given frames, in frames
HEAD = 0.4


@styled
def strips(rows: Mapping[str, Tensor], *, given: int = 0, title: str | None = None) -> Figure:
    """Clips as rows of frames, one below the other.

    All end at the same time; a shorter one begins later, and its place is empty until then.
    Frames that a model was given stand in a frame. Of more than twenty, every second or third
    is shown, and the last.

    Args:
        rows: clips `[T, C, H, W]` in [0, 1] by name, grey or in colour; at most eight.
        given: how many of the first frames were given.
        title: of the figure.

    Example:
        >>> import torch
        >>> clip = torch.rand(12, 1, 16, 16)
        >>> figure = strips({"truth": clip, "future": clip[2:]}, given=2)
        >>> len(figure.axes)
        1
    """
    clips, length, given = checked(rows, given)
    stride = math.ceil(length / FRAMES)
    shown = sorted({*range(0, length, stride), length - 1})
    known = sum(t < given for t in shown)
    height, width = next(iter(clips.values())).shape[1:3]
    ratio = height / width
    top = HEAD if known else 0.0
    tall = CELL * (ratio * len(clips) + top)
    fig = figure(MARGIN + CELL * len(shown), 0.55 + tall + 0.3 * (title is not None))
    ax = fig.subplots()
    empty(ax)
    gap = 0.06
    for r, clip in enumerate(clips.values()):
        for c, t in enumerate(shown):
            at = t - (length - len(clip))
            if at >= 0:
                draw(ax, clip[at], c, r, gap, ratio)
    ax.set_xlim(0, len(shown))
    ax.set_ylim(ratio * len(clips), -top)
    ax.set_aspect("equal")
    # Frames are counted from 1, as one speaks of them.
    ax.set_xticks([c + 0.5 for c in range(len(shown))], [str(t + 1) for t in shown])
    ax.set_yticks(
        [ratio * (r + 0.5) for r in range(len(clips))],
        [shortened(name, LETTERS) for name in clips],
        parse_math=False,
    )
    ax.set_xlabel("frame")
    if known:
        outline = Rectangle(
            (0, 0), known, ratio * len(clips), fill=False, edgecolor=COLOURS[0], linewidth=1.6,
            clip_on=False, zorder=3,
        )  # fmt: skip
        ax.add_patch(outline)
        ax.text(known / 2, -0.06, "given", ha="center", va="bottom", color=COLOURS[0], fontsize=9)
    if title:
        fig.suptitle(title, x=0.01, ha="left", parse_math=False)
    return fig


def play(rows: Mapping[str, Tensor], path: str | Path, *, given: int = 0, fps: int = 4) -> Path:
    """Clips side by side as they move, as a GIF.

    Frames that a model was given are framed, then the frame goes. The last picture stands for a
    second. The file is written whole or not at all.

    Args:
        rows: clips `[T, C, H, W]` in [0, 1] by name, all equally long; at most eight.
        path: of the file, which ends in `.gif`.
        given: how many of the first frames were given.
        fps: frames per second.

    Example:
        >>> import torch
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     play({"truth": torch.rand(3, 1, 16, 16)}, f"{folder}/clip.gif").name
        'clip.gif'
    """
    clips, length, given = checked(rows, given)
    for name, clip in clips.items():
        if len(clip) != length:
            raise ShapeError(
                f"clips that play together are equally long, but {name!r} has {len(clip)} frames "
                f"and another has {length}"
            )
    place = Path(path)
    if place.suffix.lower() != ".gif":
        raise ArgumentError(f"an animation is written as a .gif, not as {place.name!r}")
    fps = whole_number("fps", fps, 1, 50)
    if not place.parent.is_dir():
        raise FileError(f"cannot write {place}: the folder {place.parent} does not exist")
    with rc_context(RC), tempfile.TemporaryDirectory() as folder:
        draft = Path(folder, "clip.gif")
        record(clips, given, draft, fps)
        write_whole(place, draft.read_bytes())
    return place


def record(clips: Mapping[str, NDArray[Any]], given: int, path: Path, fps: int) -> None:
    """The pictures, one after another into a file."""
    length, height, width = next(iter(clips.values())).shape[:3]
    side = 1.5
    fig = figure(side * len(clips), side * height / width + 0.55)
    panels = fig.subplots(1, len(clips), squeeze=False)[0]
    images, outlines = [], []
    for ax, (name, clip) in zip(panels, clips.items(), strict=True):
        empty(ax)
        ax.set_title(shortened(name, LETTERS), fontsize=9, parse_math=False)
        images.append(ax.imshow(clip[0], cmap="gray", vmin=0, vmax=1, interpolation="nearest"))
        ax.set_xticks([])
        ax.set_yticks([])
        outline = Rectangle(
            (-0.5, -0.5), width, height, fill=False, edgecolor=COLOURS[0], linewidth=4, zorder=3
        )
        outlines.append(ax.add_patch(outline))
    told = fig.supxlabel(f"frame {length}, predicted", fontsize=9)
    fig.draw_without_rendering()
    fig.set_layout_engine("none")  # nothing moves but the clips
    writer = PillowWriter(fps=fps)
    with writer.saving(fig, str(path), dpi=100):
        for t in (*range(length), *(length - 1 for _ in range(fps))):
            for image, clip in zip(images, clips.values(), strict=True):
                image.set_data(clip[t])
            for outline in outlines:
                outline.set_visible(t < given)
            state = "given" if t < given else "predicted"
            told.set_text(f"frame {t + 1}, {state}" if given else f"frame {t + 1}")
            writer.grab_frame()


def draw(ax: Axes, frame: NDArray[Any], c: int, r: int, gap: float, ratio: float) -> None:
    """One frame in its cell."""
    ax.imshow(
        frame,
        cmap="gray",
        vmin=0,
        vmax=1,
        interpolation="nearest",
        extent=(c + gap / 2, c + 1 - gap / 2, ratio * (r + 1) - gap / 2, ratio * r + gap / 2),
    )


def empty(ax: Axes) -> None:
    """Axes without lines."""
    ax.grid(False)
    for spine in ax.spines.values():
        spine.set_visible(False)
    ax.tick_params(length=0, labelsize=8)


def checked(rows: Mapping[str, Tensor], given: int) -> tuple[dict[str, NDArray[Any]], int, int]:
    """Clips `[T, H, W, 3]` or `[T, H, W]`, the length of the longest, and how many were given."""
    if not 1 <= len(rows) <= ROWS:
        raise ArgumentError(f"one to {ROWS} clips can be shown, not {len(rows)}")
    clips = {}
    shape = None
    for name, clip in rows.items():
        if clip.dim() != 4 or clip.shape[1] not in (1, 3) or 0 in clip.shape:
            raise ShapeError(
                f"a clip is [T, C, H, W] with 1 or 3 channels, but {name!r} is {list(clip.shape)}"
            )
        shape = clip.shape[1:] if shape is None else shape
        if clip.shape[1:] != shape:
            raise ShapeError(
                f"frames of {name!r} are {list(clip.shape[1:])}, others are {list(shape)}"
            )
        frames = clip.detach().float().cpu().clamp(0, 1).permute(0, 2, 3, 1).numpy()
        clips[name] = frames[..., 0] if clip.shape[1] == 1 else np.ascontiguousarray(frames)
    length = max(len(clip) for clip in clips.values())
    return clips, length, whole_number("the number of frames given", given, 0, length)
