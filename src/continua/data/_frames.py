"""Clips of one's own: a folder of frames for each clip, or arrays."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from continua._errors import ArgumentError, FileError, MissingPackageError
from continua._values import whole_number

from ._dataset import Part
from ._files import most_unpacked
from ._split import cut
from ._video import InMemory, VideoDataset

IMAGES = (".png", ".jpg", ".jpeg")
ARRAYS = (".npy", ".npz")
PARTS = ("train", "validation", "test")

#: what `load` takes
OPTIONS: Mapping[str, Any] = {"frames": None, "size": None, "array": None, "held_out": 0.2}


def read_frames(
    root: Path, seed: int, validation: float, options: Mapping[str, Any]
) -> VideoDataset:
    """The clips of a folder.

    A clip is a sub-folder of PNG or JPEG frames in the order of their names, numbers counting as
    numbers; or a row of an array `[N, T, H, W]` or `[N, T, H, W, C]` in a `.npy` or `.npz` file.
    Where the folder has the sub-folders `train` and `test`, and perhaps `validation`, those are
    the parts; otherwise they are cut at random. Pixels are whole numbers from 0 to 255, or
    fractions from 0 to 1.

    Args:
        root: the folder, or one file of arrays.
        seed: of the cuts.
        validation: the share of the training part, where the folder has none.
        options: `frames`, the first so many of each clip, None for as many as the shortest has;
            `size`, the side of the square that is cut out of the middle and resized, None for
            frames as they are; `array`, the name of one of several arrays; `held_out`, the share
            of the clips for the test.
    """
    for name in ("frames", "size"):
        if options[name] is not None:
            whole_number(name, options[name])
    share = options["held_out"]
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share < 1:
        raise ArgumentError(f"held_out is a share between 0 and 1, not {share!r}")
    if all((root / part).is_dir() for part in ("train", "test")):
        places = [root / part for part in PARTS if (root / part).is_dir()]
    else:
        places = [root]
    read = [_clips(place, options["array"], options["size"]) for place in places]
    everything = [clip for clips in read for clip in clips]
    frames = _agreed(everything, options["frames"])
    parts = [torch.stack([clip[:frames] for _, clip in clips]) for clips in read]
    made = dict(zip((place.name for place in places), map(_part, parts), strict=True))
    if len(places) == 1:
        rest, test = cut(_part(parts[0]), float(share), seed)
        train, held = cut(rest, validation, seed)
    elif "validation" in made:
        train, held, test = (made[part] for part in PARTS)
    else:
        (train, held), test = cut(made["train"], validation, seed), made["test"]
    return VideoDataset("frames", train, held, test, classes=0, store=InMemory(train.inputs))


Named = tuple[str, Tensor]


def _part(clips: Tensor) -> Part:
    return Part(clips, torch.zeros(len(clips), dtype=torch.long))


def _agreed(clips: Sequence[Named], wanted: int | None) -> int:
    """How many frames all clips have, if they go together."""
    first, model = clips[0]
    for name, clip in clips:
        if clip.shape[1:] != model.shape[1:]:
            raise FileError(
                f"frames of {name} are {_size(clip)}, those of {first} are {_size(model)}; give "
                "size=, or clips of one shape"
            )
        if wanted is not None and len(clip) < wanted:
            raise FileError(f"{name} has {len(clip)} frames, fewer than frames={wanted}")
    return min(len(clip) for _, clip in clips) if wanted is None else wanted


def _size(clip: Tensor) -> str:
    _, channels, height, width = clip.shape
    return f"{height}x{width} with {channels} channel{'s' if channels > 1 else ''}"


def _clips(place: Path, array: str | None, size: int | None) -> list[Named]:
    """The clips of one part by name, `[T, C, H, W]` each."""
    if place.is_file():
        clips = _from_arrays([place], array)
    else:
        below = sorted((p for p in place.iterdir() if p.is_dir()), key=_order)
        folders = {p: found for p in below if (found := _images(p))}
        files = sorted(p for p in place.iterdir() if p.suffix in ARRAYS)
        if folders and files and array is None:
            raise FileError(
                f"{place} holds both folders of frames and arrays ({files[0].name}); name the "
                "array with array=, or move one of the kinds away"
            )
        if folders and array is None:
            clips = [(str(folder), _from_images(found)) for folder, found in folders.items()]
        elif files:
            clips = _from_arrays(files, array)
        else:
            raise FileError(
                f"{place} holds no clips: neither folders of {', '.join(IMAGES)} nor "
                f"{' or '.join(ARRAYS)} files"
            )
    return [(name, clip if size is None else _squared(clip, size)) for name, clip in clips]


def _squared(clip: Tensor, size: int) -> Tensor:
    """The square in the middle, in this size."""
    height, width = clip.shape[2:]
    side = min(height, width)
    top, left = (height - side) // 2, (width - side) // 2
    middle = clip[:, :, top : top + side, left : left + side]
    if side == size:
        return middle.contiguous()
    smooth = F.interpolate(
        middle.float(), size=(size, size), mode="bilinear", antialias=size < side
    )
    return smooth.round().clamp(0, 255).byte()


# -- images ------------------------------------------------------------------------------------


def _order(path: Path) -> list[tuple[int, int, str]]:
    """Names in the order in which one counts: frame2 before frame10."""
    pieces = re.split(r"(\d+)", path.name)
    return [(1, int(p), "") if p.isdecimal() else (0, 0, p) for p in pieces if p]


def _images(folder: Path) -> list[Path]:
    return sorted((p for p in folder.iterdir() if p.suffix.lower() in IMAGES), key=_order)


def _from_images(paths: Sequence[Path]) -> Tensor:
    opened = _opener()
    frames: list[Tensor] = []
    for path in paths:
        frame = opened(path)
        if frames and frame.shape != frames[0].shape:
            raise FileError(
                f"{path} is {_size(frame[None])}, but {paths[0].name} beside it is "
                f"{_size(frames[0][None])}"
            )
        frames.append(frame)
    return torch.stack(frames)


def _opener() -> Callable[[Path], Tensor]:
    try:
        from PIL import Image
    except ImportError as error:
        raise MissingPackageError(
            "PNG and JPEG frames are read by Pillow, which is not installed",
            otherwise="give the clips as a .npy file",
        ) from error

    def opened(path: Path) -> Tensor:
        try:
            with Image.open(path, formats=("PNG", "JPEG")) as image:
                size = 3 * image.width * image.height
                if size > (most := most_unpacked(path)):
                    raise ValueError(f"it unpacks to {size:,} bytes, more than {most:,}")
                plain = image if image.mode == "L" else image.convert("RGB")
                pixels = torch.from_numpy(np.array(plain, dtype=np.uint8))
        except Exception as error:  # Pillow has many kinds
            raise FileError(f"{path} cannot be read as an image: {error}") from None
        return pixels[None] if pixels.ndim == 2 else pixels.permute(2, 0, 1).contiguous()

    return opened


# -- arrays ------------------------------------------------------------------------------------


def _from_arrays(files: Sequence[Path], wanted: str | None) -> list[Named]:
    arrays: dict[str, tuple[Path, NDArray[Any]]] = {}
    for path in files:
        for name, array in _opened(path).items():
            # Beside the clips there may be arrays about them.
            if array.ndim in (4, 5) and array.dtype.kind in "uif":
                arrays[name] = (path, array)
            elif name == wanted or path.suffix == ".npy":
                raise FileError(
                    f"{name!r} in {path} is {array.dtype} of shape {list(array.shape)}; clips are "
                    "numbers [N, T, H, W] or [N, T, H, W, C]"
                )
    if wanted is not None:
        if wanted not in arrays:
            raise ArgumentError(f"there is no array {wanted!r}; there are {_told(arrays)}")
        arrays = {wanted: arrays[wanted]}
    shapes = {array.shape[2:] for _, array in arrays.values()}
    if len(shapes) != 1:
        where = files[0] if len(files) == 1 else files[0].parent
        raise FileError(f"{where} holds {_told(arrays)}; choose one with array=")
    found: list[Named] = []
    for name, (path, array) in arrays.items():
        clips = _pixels(array, f"{name!r} in {path}")
        found += [(f"clip {i} of {name!r} in {path}", clip) for i, clip in enumerate(clips)]
    if not found:
        raise FileError(f"{files[0]} holds no clips")
    return found


def _told(arrays: Mapping[str, tuple[Path, NDArray[Any]]]) -> str:
    words = [f"{name!r} {list(array.shape)}" for name, (_, array) in arrays.items()]
    return ", ".join(words) or "no arrays of clips"


def _opened(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays of a file by name; never unpickled."""
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                whole = sum(member.file_size for member in archive.infolist())
            if whole > (most := most_unpacked(path)):
                raise ValueError(f"it unpacks to {whole:,} bytes, more than {most:,}")
        opened = np.load(path, allow_pickle=False)
        if isinstance(opened, np.ndarray):
            return {path.stem: opened}
        with opened:
            found = {name: opened[name] for name in opened.files}
            # A member that is no array comes as bytes.
            return {n: array for n, array in found.items() if isinstance(array, np.ndarray)}
    except Exception as error:  # of the system, of zip, of zlib or of NumPy
        raise FileError(f"{path} cannot be read as arrays: {error}") from None


def _pixels(array: NDArray[Any], where: str) -> Tensor:
    """Clips in uint8, `[N, T, C, H, W]`."""
    if 0 in array.shape:
        raise FileError(f"{where} is empty: its shape is {list(array.shape)}")
    if array.ndim == 5 and array.shape[-1] not in (1, 3):
        raise FileError(
            f"{where} has frames of {array.shape[-1]} channels; they come last, and are 1 or 3"
        )
    low, high = float(array.min()), float(array.max())
    most = 1.0 if array.dtype.kind == "f" else 255.0
    if not (low >= 0 and high <= most):
        bad = high if not high <= most else low
        raise FileError(
            f"{where} has the pixel value {bad:g}; pixels of {array.dtype} go from 0 to {most:g}"
        )
    if array.dtype.kind == "f":
        array = np.rint(array * 255)
    clips = torch.from_numpy(np.array(array, dtype=np.uint8))
    clips = clips.unsqueeze(-1) if clips.ndim == 4 else clips
    return clips.permute(0, 1, 4, 2, 3).contiguous()
