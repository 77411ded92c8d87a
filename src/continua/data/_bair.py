"""BAIR robot pushing: a robot's arm among things, in TFRecord files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from continua._errors import FileError
from continua._values import whole_number

from ._dataset import Part
from ._split import cut
from ._tfrecord import example_bytes, read_record, record_places
from ._video import Store, VideoDataset

FOLDER = "softmotion30_44k"
SIDE, CHANNELS = 64, 3
LENGTH = 30

#: what `load` takes
OPTIONS: Mapping[str, Any] = {"frames": LENGTH, "camera": "image_aux1"}


class Records(Store):
    """Clips in the records of TFRecord files, each read, checked and parsed when it is asked for.

    A part holds where: file, number of the record, offset and length, `[N, 4]`.

    Args:
        files: in which they are.
        frames: of a clip to read, from its first on.
        camera: whose frames.
    """

    def __init__(self, files: list[Path], frames: int, camera: str):
        self.files, self.camera = files, camera
        self.frames = frames
        self.shape = (CHANNELS, SIDE, SIDE)

    def part(self, files: list[Path]) -> Part:
        """All clips of some of the files."""
        rows = []
        for path in files:
            which = self.files.index(path)
            places = record_places(path)
            rows += [(which, number, *place) for number, place in enumerate(places)]
        return Part(torch.tensor(rows), torch.zeros(len(rows), dtype=torch.long))

    def read(self, part: Part, index: Tensor, generator: torch.Generator | None) -> Tensor:
        clips = [self._clip(*row) for row in part.inputs[index].tolist()]
        return torch.stack(clips) if clips else torch.empty(0, self.frames, *self.shape).byte()

    def _clip(self, which: int, number: int, at: int, length: int) -> Tensor:
        path = self.files[which]
        where = f"record {number:,} of {path}"
        try:
            found = example_bytes(read_record(path, number, at, length))
        except ValueError as error:
            raise FileError(f"{where} is no tf.train.Example: {error}") from None
        frames = []
        for i in range(self.frames):
            key = f"{i}/{self.camera}/encoded"
            if key not in found:
                raise FileError(
                    f"{where} has no {key!r}: it has fewer than {self.frames} frames, or is not "
                    "of BAIR robot pushing"
                )
            if len(found[key]) != SIDE * SIDE * CHANNELS:
                raise FileError(
                    f"{key!r} in {where} has {len(found[key]):,} bytes, not the "
                    f"{SIDE * SIDE * CHANNELS:,} of {SIDE}x{SIDE} pixels"
                )
            frames.append(torch.frombuffer(bytearray(found[key]), dtype=torch.uint8))
        clip = torch.stack(frames).view(self.frames, SIDE, SIDE, CHANNELS)
        return clip.permute(0, 3, 1, 2).contiguous()


def find_bair(root: Path) -> dict[str, Path]:
    """The files of the official layout, by part and name, in this folder or in one below."""
    for base in (root, root / FOLDER, root / "bair", root / "bair" / FOLDER):
        found = {
            f"{part}/{path.name}": path
            for part in ("train", "test")
            for path in sorted((base / part).glob("traj_*.tfrecords"))
        }
        if {name.partition("/")[0] for name in found} == {"train", "test"}:
            return found
    return {}


def read_bair(
    files: Mapping[str, Path], seed: int, validation: float, options: Mapping[str, Any]
) -> VideoDataset:
    """The official training and test parts, a share of the former for validation.

    Only the places of the records are read here; clips are read when they are asked for, since
    all of them together are larger than most memories.

    F. Ebert, C. Finn, A. Lee and S. Levine, *Self-Supervised Visual Planning with Temporal Skip
    Connections*, 2017.
    """
    frames = whole_number("frames", options["frames"])
    store = Records(list(files.values()), frames, str(options["camera"]))
    parts = {
        part: store.part([path for name, path in files.items() if name.startswith(f"{part}/")])
        for part in ("train", "test")
    }
    train, held = cut(parts["train"], validation, seed)
    # So that a layout that is not the one meant is found out before any work.
    store.read(train, torch.tensor([0]), None)
    return VideoDataset("bair", train, held, parts["test"], classes=0, store=store)
