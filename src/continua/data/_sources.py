"""The sets: what they are, what they cost and where they come from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from . import _bair, _frames, _moving
from ._cifar import CIFAR10_TEST, CIFAR10_TRAIN, read_cifar10, read_cifar100
from ._dataset import Dataset, Part
from ._digits import read_digits
from ._files import Remote
from ._idx import read_mnist
from ._split import cut
from ._toy import Generate, annuli, checkerboard, circles, moons, read_toy, spirals
from ._treebank import PARTS, read_treebank

Read = Callable[[Mapping[str, Path], int, float, Mapping[str, Any]], Dataset]


@dataclass(frozen=True)
class Source:
    """One set that `load` knows.

    Attributes:
        name: to load it by.
        what: it is, in a few words.
        sizes: items in train, validation and test, if nothing else is asked for.
        licence: under which it is published.
        kind: whether it comes with scikit-learn, is generated, is read from files, or from a
            folder of the user's own.
        read: turns files, seed, validation share and options into the set.
        validation: the share of the training part, or None if the layout has its own.
        options: the names of the options and what they are if not given.
        files: of the official layout.
        archive: that holds the files, if they are not published one by one.
        folders: where they may lie under a folder; downloads go to the first.
        scan: finds the files under a folder where their names are not known beforehand; what is
            not there is then too large to be downloaded unasked.
    """

    name: str
    what: str
    sizes: tuple[int, int, int]
    licence: str
    kind: Literal["embedded", "generated", "files", "folder"]
    read: Read = field(repr=False)
    validation: float | None
    options: Mapping[str, Any] = field(default_factory=dict)
    files: tuple[Remote, ...] = field(default=(), repr=False)
    archive: Remote | None = field(default=None, repr=False)
    folders: tuple[str, ...] = ()
    scan: Callable[[Path], dict[str, Path]] | None = field(default=None, repr=False)

    @property
    def download_bytes(self) -> int:
        """What a download costs."""
        return self.archive.bytes if self.archive else sum(file.bytes for file in self.files)


def _digits() -> Source:
    return Source(
        name="digits",
        what="handwritten digits, 8x8 grey, 10 classes",
        sizes=(1078, 269, 450),
        licence="BSD-3-Clause, part of scikit-learn",
        kind="embedded",
        read=lambda files, seed, validation, options: read_digits(seed, validation),
        validation=0.2,
    )


# -- images ------------------------------------------------------------------------------------


def _images(
    name: str,
    read: Callable[[Mapping[str, Path], bool], tuple[Part, Part]],
    classes: int,
    mean: tuple[float, ...],
    std: tuple[float, ...],
) -> Read:
    def image_set(
        files: Mapping[str, Path], seed: int, validation: float, options: Mapping[str, Any]
    ) -> Dataset:
        official, test = read(files, bool(options["any_size"]))
        train, held = cut(official, validation, seed)
        return Dataset(name, train, held, test, classes, mean, std)

    return image_set


def _idx(
    name: str,
    what: str,
    licence: str,
    base: str,
    published: tuple[tuple[int, str], ...],
    folders: tuple[str, ...],
    mean: float,
    std: float,
) -> Source:
    names = [
        f"{p}-{kind}-ubyte" for p in ("train", "t10k") for kind in ("images-idx3", "labels-idx1")
    ]
    return Source(
        name=name,
        what=what,
        sizes=(54_000, 6_000, 10_000),
        licence=licence,
        kind="files",
        read=_images(name, lambda f, any_size: read_mnist(name, f, any_size), 10, (mean,), (std,)),
        validation=0.1,
        options={"any_size": False},
        files=tuple(
            Remote(file, f"{base}{file}.gz", size, f"md5:{md5}")
            for file, (size, md5) in zip(names, published, strict=True)
        ),
        folders=folders,
    )


def _cifar(
    name: str,
    what: str,
    read: Callable[[Mapping[str, Path], bool], tuple[Part, Part]],
    classes: int,
    names: tuple[str, ...],
    archive: Remote,
    folder: str,
) -> Source:
    return Source(
        name=name,
        what=what,
        sizes=(45_000, 5_000, 10_000),
        licence="none stated; cite Krizhevsky 2009",
        kind="files",
        # CIFAR-100 is normalised with the constants of CIFAR-10, as the stateful ODE-nets were.
        read=_images(name, read, classes, (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)),
        validation=0.1,
        options={"any_size": False},
        files=tuple(Remote(file) for file in names),
        archive=archive,
        folders=(folder, f"{name}/{folder}", name),
    )


# -- treebanks ---------------------------------------------------------------------------------

RELEASE = "r2.16"


def _treebank(
    name: str,
    repository: str,
    prefix: str,
    what: str,
    licence: str,
    counts: dict[str, tuple[int, int]],
    published: dict[str, tuple[int, str | None]],
) -> Source:
    base = f"https://raw.githubusercontent.com/UniversalDependencies/{repository}/{RELEASE}/"

    def read(
        files: Mapping[str, Path], seed: int, validation: float, options: Mapping[str, Any]
    ) -> Dataset:
        return read_treebank(
            name,
            {part: files[f"{prefix}-ud-{part}.conllu"] for part in PARTS},
            {} if options["any_size"] else counts,
            max_length=options["max_length"],
            max_forms=options["max_forms"],
        )

    return Source(
        name=name,
        what=what,
        sizes=(counts["train"][0], counts["dev"][0], counts["test"][0]),
        licence=licence,
        kind="files",
        read=read,
        validation=None,
        options={"any_size": False, "max_length": 102, "max_forms": 100_000},
        files=tuple(
            Remote(
                f"{prefix}-ud-{part}.conllu", f"{base}{prefix}-ud-{part}.conllu", *published[part]
            )
            for part in PARTS
        ),
        folders=(
            "ud",
            repository,
            f"ud/{repository}",
            f"ud-treebanks-v{RELEASE.removeprefix('r')}/{repository}",
            name,
        ),
    )


# -- points ------------------------------------------------------------------------------------


def _toy(name: str, what: str, generate: Generate, noise: float) -> Source:
    return Source(
        name=name,
        what=what,
        sizes=(614, 154, 256),
        licence="free of rights",
        kind="generated",
        read=lambda files, seed, validation, options: read_toy(
            name, generate, seed=seed, validation=validation, n=options["n"], noise=options["noise"]
        ),
        validation=0.2,
        options={"n": 1024, "noise": noise},
    )


# -- clips -------------------------------------------------------------------------------------


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


# The files of IDX sets in the order train images, train labels, test images, test labels.
_ALL = (
    _digits(),
    _idx(
        "mnist",
        "handwritten digits, 28x28 grey, 10 classes",
        "none stated; cite LeCun et al. 1998",
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        (
            (9_912_422, "f68b3c2dcbeaaa9fbdd348bbdeb94873"),
            (28_881, "d53e105ee54ea40749a09fcbcd1e9432"),
            (1_648_877, "9fb629c4189551a2d022fa330f9573f3"),
            (4_542, "ec29112dd5afa0611ce80d1b7f02629c"),
        ),
        ("mnist", "MNIST/raw", "MNIST"),
        0.1307,
        0.3081,
    ),
    _idx(
        "fashion-mnist",
        "pieces of clothing, 28x28 grey, 10 classes",
        "MIT",
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        (
            (26_421_880, "8d4fb7e6c68d591d4c3dfef9ec88bf0d"),
            (29_515, "25c81989df183df01b3e8a0aad5dffbe"),
            (4_422_102, "bef4ecab320f06d8554ea6380940ec79"),
            (5_148, "bb300cfdad3c16e7a12a480ee83cd310"),
        ),
        ("fashion-mnist", "FashionMNIST/raw", "FashionMNIST"),
        0.2860,
        0.3530,
    ),
    _cifar(
        "cifar10",
        "photographs, 32x32 colour, 10 classes",
        read_cifar10,
        10,
        (*CIFAR10_TRAIN, *CIFAR10_TEST),
        Remote(
            "cifar-10-binary.tar.gz",
            "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
            170_052_171,
            "md5:c32a1d4ab5d03f1284b67883e8d87530",
        ),
        "cifar-10-batches-bin",
    ),
    _cifar(
        "cifar100",
        "photographs, 32x32 colour, 100 classes",
        read_cifar100,
        100,
        ("train.bin", "test.bin"),
        Remote(
            "cifar-100-binary.tar.gz",
            "https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",
            168_513_733,
            "md5:03b5dce01913d631647c71ecec9e9cb8",
        ),
        "cifar-100-binary",
    ),
    _treebank(
        "ud-english-ewt",
        "UD_English-EWT",
        "en_ewt",
        "English web text, words and their tags",
        "CC BY-SA 4.0",
        {"train": (12_544, 204_577), "dev": (2_001, 25_147), "test": (2_077, 25_094)},
        {
            "train": (
                14_203_025,
                "sha256:3fb78e2b55482c8ee00caa653af436c88c9e5bc9a73ce26e4ae3ddc79d2b7e7b",
            ),
            "dev": (
                1_805_545,
                "sha256:531a54ff90d6ab12201c5a50c3e78e6ddac4de69abc4bce5d275d3cd29efe2b6",
            ),
            "test": (
                1_804_515,
                "sha256:e266e515a0a7547657ed3d90d9ba46487d6bd251f27ad4269d4e8a427c8555cd",
            ),
        },
    ),
    _treebank(
        "ud-english-gum",
        "UD_English-GUM",
        "en_gum",
        "English of twelve kinds and more, words and their tags",
        "CC BY-NC-SA 4.0",
        {"train": (10_224, 177_410), "dev": (1_575, 28_119), "test": (1_464, 28_397)},
        {
            # The hash of the training file is not known here: its sentences and words are counted.
            "train": (18_437_023, None),
            "dev": (
                2_914_819,
                "sha256:581997015a2d878ad49619032d265a9753e1b6b03d75ca18b04a00bb9ee8991d",
            ),
            "test": (
                2_917_494,
                "sha256:fe95c0e744f81cdf2a307ce522604ecc05cd359c7c6d1abaa3a46c85d024f34c",
            ),
        },
    ),
    _toy("moons", "two half circles in the plane, 2 classes", moons, 0.1),
    _toy("circles", "two circles in the plane, 2 classes", circles, 0.05),
    _toy("annuli", "two annuli in the plane, 2 classes", annuli, 0.1),
    _toy("spirals", "two spirals in the plane, 2 classes", spirals, 0.05),
    _toy("checkerboard", "squares of one colour in the plane, 2 classes", checkerboard, 0.0),
)

_VIDEO = (
    _moving_mnist(next(source for source in _ALL if source.name == "mnist")),
    _moving_digits(),
    _bair_pushing(),
    _own_frames(),
)

DATASETS: dict[str, Source] = {source.name: source for source in (*_ALL, *_VIDEO)}
