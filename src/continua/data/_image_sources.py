"""Image datasets: digits, MNIST, Fashion-MNIST, CIFAR-10 and CIFAR-100."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ._cifar import CIFAR10_TEST, CIFAR10_TRAIN, read_cifar10, read_cifar100
from ._dataset import Dataset, Part
from ._digits import read_digits
from ._files import Remote
from ._idx import read_mnist
from ._source import Read, Source
from ._split import cut


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


# The files of IDX sets in the order train images, train labels, test images, test labels.
IMAGES = (
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
)
