"""The handwritten digits that come with scikit-learn."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from continua._errors import ArgumentError, MissingPackageError

from ._dataset import Dataset, Part
from ._split import checked_seed, cut


@dataclass(frozen=True)
class Split:
    """Images and labels in two parts that share no image.

    Attributes:
        train_images: `[N, C, H, W]` in float32.
        train_labels: `[N]` in int64.
        test_images: the held-out images.
        test_labels: their labels.
        classes: how many different labels there are.
    """

    train_images: Tensor
    train_labels: Tensor
    test_images: Tensor
    test_labels: Tensor
    classes: int


def digits(seed: int = 0, held_out: float = 0.25) -> Split:
    """1,797 handwritten digits of 8x8 pixels, split at random with every class in proportion.

    Pixels lie in [0, 1], ink is 1. Nothing is downloaded: the images are part of scikit-learn.

    Args:
        seed: of the split.
        held_out: the share of images in the test part.

    E. Alpaydin and C. Kaynak, *Optical Recognition of Handwritten Digits*, 1998.

    Example:
        >>> split = digits()
        >>> split.train_images.shape, split.test_images.shape
        (torch.Size([1347, 1, 8, 8]), torch.Size([450, 1, 8, 8]))
    """
    checked_seed(seed)
    if not 0.0 < held_out < 1.0:
        raise ArgumentError(f"held_out is a share between 0 and 1, not {held_out!r}")
    try:
        from sklearn.datasets import load_digits
        from sklearn.model_selection import train_test_split
    except ImportError as error:
        raise MissingPackageError(
            "the digits come with scikit-learn, which is not installed"
        ) from error
    raw = load_digits()
    images = torch.from_numpy(raw.images).float().div(16).unsqueeze(1)  # [N, 1, 8, 8]
    labels = torch.from_numpy(raw.target).long()
    try:
        train, test = train_test_split(
            range(len(labels)), test_size=held_out, random_state=seed, stratify=raw.target
        )
    except ValueError as error:
        raise ArgumentError(f"held_out={held_out!r} leaves a part too small: {error}") from None
    return Split(
        train_images=images[train],
        train_labels=labels[train],
        test_images=images[test],
        test_labels=labels[test],
        classes=10,
    )


def read_digits(seed: int, validation: float) -> Dataset:
    """The digits with a validation part: `digits(seed)`, a share of whose training part is cut out.

    Args:
        seed: of both cuts; the test part is that of `digits(seed)`.
        validation: the share of the images outside the test part.
    """
    split = digits(seed)
    train, held = cut(Part(_pixels(split.train_images), split.train_labels), validation, seed)
    shares = train.inputs.double() / 16
    return Dataset(
        name="digits",
        train=train,
        validation=held,
        test=Part(_pixels(split.test_images), split.test_labels),
        classes=split.classes,
        mean=(float(shares.mean()),),
        std=(float(shares.std()),),
        scale=16.0,
    )


def _pixels(images: Tensor) -> Tensor:
    return images.mul(16).byte()  # exact: pixels are whole sixteenths
