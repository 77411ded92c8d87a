"""MNIST and Fashion-MNIST: the IDX layout."""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from continua._errors import FileError

from ._dataset import Part
from ._files import content

KINDS = {0x801: "labels", 0x803: "images"}
SIDE = 28

# The labels of MNIST by their checksum: Fashion-MNIST has files of the same names and sizes.
MNIST_LABELS = {0xBA07E8EF: "train", 0xEE8604D9: "t10k"}


def read_idx(path: Path) -> Tensor:
    """The images or labels in one IDX file, which may be compressed.

    Layout: a magic number (two zero bytes, the type 8 for bytes, the number of dimensions), the
    size of each dimension, then the bytes; all numbers big-endian.

    Y. LeCun, C. Cortes and C. Burges, *The MNIST Database of Handwritten Digits*, 1998.
    """
    raw = content(path)
    magic = int.from_bytes(raw[:4], "big")
    if magic not in KINDS or len(raw) < 4:
        raise FileError(
            f"{path} is no IDX file of images or labels: it starts with 0x{raw[:4].hex()}, "
            "not with 0x00000803 or 0x00000801"
        )
    header = 4 + 4 * (magic & 0xFF)
    if len(raw) < header:
        raise FileError(f"{path} is truncated: it ends after {len(raw)} bytes, in its header")
    shape = [int.from_bytes(raw[i : i + 4], "big") for i in range(4, header, 4)]
    size = header + math.prod(shape)
    if len(raw) != size:
        state = "truncated" if len(raw) < size else "damaged"
        raise FileError(
            f"{path} is {state}: its header says {KINDS[magic]} {shape}, which is {size:,} bytes, "
            f"but it has {len(raw):,}"
        )
    if size == header:
        raise FileError(f"{path} holds no {KINDS[magic]}")
    # A bytearray, because torch shares the memory and bytes cannot be written to.
    body = torch.frombuffer(bytearray(memoryview(raw)[header:]), dtype=torch.uint8)
    return body.view(shape)


def read_mnist(name: str, files: Mapping[str, Path], any_size: bool) -> tuple[Part, Part]:
    """The official training and test parts of MNIST or Fashion-MNIST.

    Args:
        name: of the set.
        files: by their official names.
        any_size: whether to accept other counts than 60,000 and 10,000.
    """
    return (
        _part(name, files, "train", None if any_size else 60_000),
        _part(name, files, "t10k", None if any_size else 10_000),
    )


def _part(name: str, files: Mapping[str, Path], part: str, count: int | None) -> Part:
    image_file = files[f"{part}-images-idx3-ubyte"]
    label_file = files[f"{part}-labels-idx1-ubyte"]
    images, labels = read_idx(image_file), read_idx(label_file)
    for path, tensor, kind, dimensions in (
        (image_file, images, "images", 3),
        (label_file, labels, "labels", 1),
    ):
        if tensor.ndim != dimensions:
            other = "labels" if kind == "images" else "images"
            raise FileError(f"{path} holds {other}, not {kind}: two files were swapped")
        if count is not None and len(tensor) != count:
            raise FileError(
                f"{path} holds {len(tensor):,} {kind}, but {part} of {name} has {count:,}: it was "
                "swapped with another file, or cut; any_size=True reads it all the same"
            )
    if list(images.shape[1:]) != [SIDE, SIDE]:
        height, width = images.shape[1:]
        raise FileError(
            f"{image_file} holds images of {height}x{width} pixels; those of {name} are "
            f"{SIDE}x{SIDE}"
        )
    if len(images) != len(labels):
        raise FileError(
            f"{image_file} holds {len(images):,} images, but {label_file} {len(labels):,} labels: "
            "they do not belong together"
        )
    check_labels(label_file, labels, 10)
    known = MNIST_LABELS.get(zlib.crc32(labels.numpy().tobytes()))
    if known is not None and name != "mnist":
        raise FileError(f"{label_file} holds the {known} labels of MNIST, not of {name}")
    return Part(images.unsqueeze(1), labels.long())


def check_labels(path: Path, labels: Tensor, classes: int) -> None:
    """Name the first label that is out of range."""
    wrong = (labels >= classes).nonzero()
    if len(wrong):
        index = int(wrong[0])
        raise FileError(
            f"{path} is damaged: label {index:,} is {int(labels[index])}, but labels go from 0 to "
            f"{classes - 1}"
        )
