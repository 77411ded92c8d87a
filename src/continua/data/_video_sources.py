"""Video datasets."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from . import _bair, _frames, _moving
from ._dataset import Dataset
from ._digits import read_digits
from ._files import Remote
from ._idx import read_mnist
from ._image_sources import IMAGES
from ._source import Source


def _moving_mnist(mnist: Source) -> Source:
    def read(
        files: Mapping[str, Path], seed: int, validation: float, options: Mapping[str, Any]
    ) -> Dataset:
        official, test = read_mnist("mnist", files, bool(options["any_size"]))
        source = Dataset("mnist", official, test, test, 10)
        return _moving.read_moving("moving-mnist", source, seed, validation, options)

    return Source(
        name="moving-mnist",
        what="clips of MNIST digits that bounce about in a frame, 64x64 grey",
        sizes=(9_000, 1_000, 1_000),
        licence=mnist.licence,
        kind="files",
        read=read,
        validation=0.1,
        options={**_moving.OPTIONS, "any_size": False},
        files=mnist.files,
        folders=mnist.folders,
    )


def _moving_digits() -> Source:
    def read(
        files: Mapping[str, Path], seed: int, validation: float, options: Mapping[str, Any]
    ) -> Dataset:
        source = read_digits(0, 0.0)  # the digits of the test part are the same for every seed
        return _moving.read_moving("moving-digits", source, seed, validation, options)

    return Source(
        name="moving-digits",
        what="clips of the embedded digits that bounce about in a frame, 32x32 grey",
        sizes=(1_800, 200, 500),
        licence="BSD-3-Clause, made of digits that are part of scikit-learn",
        kind="generated",
        read=read,
        validation=0.1,
        options={**_moving.OPTIONS, "n": 2_000, "test": 500, "size": 32},
    )


def _bair_pushing() -> Source:
    return Source(
        name="bair",
        what="clips of a robot's arm that pushes things about, 30 frames of 64x64 colour",
        sizes=(41_101, 2_163, 256),
        licence="CC BY 4.0; cite Ebert et al. 2017",
        kind="files",
        read=_bair.read_bair,
        validation=0.05,
        options=_bair.OPTIONS,
        archive=Remote(
            "bair_robot_pushing_dataset_v0.tar",
            "http://rail.eecs.berkeley.edu/datasets/bair_robot_pushing_dataset_v0.tar",
            32_277_000_000,  # 30.06 GiB, to four digits
        ),
        folders=(_bair.FOLDER, "bair"),
        scan=_bair.find_bair,
    )


def _own_frames() -> Source:
    return Source(
        name="frames",
        what="clips of your own: a folder of frames each, or arrays",
        sizes=(0, 0, 0),
        licence="yours",
        kind="folder",
        read=lambda files, seed, validation, options: _frames.read_frames(
            files["folder"], seed, validation, options
        ),
        validation=0.2,
        options=_frames.OPTIONS,
    )


CLIPS = (
    _moving_mnist(next(source for source in IMAGES if source.name == "mnist")),
    _moving_digits(),
    _bair_pushing(),
    _own_frames(),
)
