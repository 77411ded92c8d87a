"""CIFAR-10 and CIFAR-100: the binary layout."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from continua._errors import FileError

from ._dataset import Part
from ._idx import check_labels

PIXELS = 3 * 32 * 32
CIFAR10_TRAIN = tuple(f"data_batch_{k}.bin" for k in range(1, 6))
CIFAR10_TEST = ("test_batch.bin",)

# The official files by the checksum of their labels: a training batch under the name of the test
# batch has the right size, and would be a wrong result that looks like a good one.
CIFAR10_LABELS = {
    0x8EE293B3: "data_batch_1.bin",
    0x1BE266ED: "data_batch_2.bin",
    0x6CAE721A: "data_batch_3.bin",
    0x12C0B39C: "data_batch_4.bin",
    0xA424037D: "data_batch_5.bin",
    0xBADA58C9: "test_batch.bin",
}


def read_cifar10(files: Mapping[str, Path], any_size: bool) -> tuple[Part, Part]:
    """The official training and test parts of CIFAR-10.

    A. Krizhevsky, *Learning Multiple Layers of Features from Tiny Images*, 2009.
    """
    count = None if any_size else 10_000
    train = _records(files, CIFAR10_TRAIN, count, 10, label_bytes=1)
    test = _records(files, CIFAR10_TEST, count, 10, label_bytes=1)
    return train, test


def read_cifar100(files: Mapping[str, Path], any_size: bool) -> tuple[Part, Part]:
    """The official training and test parts of CIFAR-100, with the 100 fine labels."""
    train = _records(files, ("train.bin",), None if any_size else 50_000, 100, label_bytes=2)
    test = _records(files, ("test.bin",), None if any_size else 10_000, 100, label_bytes=2)
    return train, test


def _records(
    files: Mapping[str, Path],
    names: Sequence[str],
    count: int | None,
    classes: int,
    label_bytes: int,
) -> Part:
    """Files of records: one or two label bytes, the last being the label, then the pixels.

    Each file is copied once, into its place in the tensor of all images.
    """
    record = label_bytes + PIXELS
    sizes = [_count(files[name], record, count) for name in names]
    images = torch.empty(sum(sizes), 3, 32, 32, dtype=torch.uint8)
    labels = torch.empty(sum(sizes), dtype=torch.int64)
    start = 0
    for name, size in zip(names, sizes, strict=True):
        stop = start + size
        labels[start:stop] = _copy(files[name], size, record, classes, images[start:stop], name)
        start = stop
    return Part(images, labels)


def _count(path: Path, record: int, count: int | None) -> int:
    try:
        size = path.stat().st_size
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error.strerror or error}") from error
    whole, rest = divmod(size, record)
    if whole == 0 or rest:
        raise FileError(
            f"{path} is truncated: its {size:,} bytes are {whole:,} images of {record:,} bytes "
            f"and {rest:,} bytes of another"
        )
    if count is not None and whole != count:
        raise FileError(
            f"{path} holds {whole:,} images, but the official file {count:,}: it was swapped with "
            "another file, or cut; any_size=True reads it all the same"
        )
    return whole


def _copy(path: Path, size: int, record: int, classes: int, images: Tensor, name: str) -> Tensor:
    try:
        rows = np.fromfile(path, dtype=np.uint8)
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error.strerror or error}") from error
    if rows.size != size * record:
        raise FileError(f"{path} changed while it was read; try again")
    records = torch.from_numpy(rows).view(size, record)
    labels = records[:, -PIXELS - 1].contiguous()
    check_labels(path, labels, classes)
    known = CIFAR10_LABELS.get(zlib.crc32(labels.numpy().tobytes()))
    if known is not None and known != name:
        raise FileError(f"{path} holds what belongs in {known}: two files were swapped")
    images.copy_(records[:, -PIXELS:].view(size, 3, 32, 32))
    return labels
