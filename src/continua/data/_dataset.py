"""What every reader returns: three parts that share nothing."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from continua._errors import ShapeError


@dataclass(frozen=True, eq=False)
class Part:
    """Inputs and the targets that belong to them, of equal length.

    Attributes:
        inputs: images `[N, C, H, W]` in uint8, token ids `[N, T]` in int64, or points `[N, 2]`
            in float32.
        targets: `[N]` in int64, or `[N, T]` with 0 where nothing is to be predicted.
    """

    inputs: Tensor
    targets: Tensor

    def __post_init__(self) -> None:
        if len(self.inputs) != len(self.targets):
            raise ShapeError(
                f"{len(self.inputs)} inputs cannot have {len(self.targets)} targets; "
                "give one target for each input"
            )

    def __len__(self) -> int:
        return len(self.inputs)

    def __repr__(self) -> str:
        return f"Part(inputs={_shown(self.inputs)}, targets={_shown(self.targets)})"


@dataclass(frozen=True, eq=False)
class Dataset:
    """Three disjoint parts and what a model must know to read them.

    Choose everything on `train` and `validation`; touch `test` once, at the end.

    Attributes:
        name: the name it was loaded by.
        train: what is learned from.
        validation: what choices are made on; empty if none was asked for.
        test: what the final number is measured on.
        classes: how many different targets there are; for tagging the padding 0 counts.
        mean: of each channel in [0, 1], for images.
        std: of each channel, for images.
        forms: the word of each token id, for treebanks.
        tags: the tag of each target, for treebanks.
        scale: the pixel value that becomes 1, for images.
    """

    name: str
    train: Part
    validation: Part
    test: Part
    classes: int
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    forms: tuple[str, ...] = field(default=(), repr=False)
    tags: tuple[str, ...] = field(default=(), repr=False)
    scale: float = 255.0

    def prepared(self, inputs: Tensor) -> Tensor:
        r"""A batch of inputs as a model wants it: images become float32 and are normalised.

        .. math:: (x / \text{scale} - \text{mean}) / \text{std}

        Token ids and points come back as they are. The batch may lie on any device.

        Args:
            inputs: `[B, C, H, W]` for images.

        Example:
            >>> from continua.data import load
            >>> digits = load("digits")
            >>> x = digits.prepared(digits.train.inputs)
            >>> x.dtype, bool(x.mean().abs() < 1e-5), bool((x.std() - 1).abs() < 1e-3)
            (torch.float32, True, True)
        """
        if not self.mean:
            return inputs
        if inputs.ndim != 4 or inputs.shape[1] != len(self.mean):
            raise ShapeError(
                f"a batch of {self.name} is [B, {len(self.mean)}, H, W], not {list(inputs.shape)}"
            )
        shape = (1, -1, 1, 1)
        mean = torch.tensor(self.mean, device=inputs.device).view(shape)
        std = torch.tensor(self.std, device=inputs.device).view(shape)
        # One multiplication and one subtraction per pixel.
        return inputs.float().mul(1 / (self.scale * std)).sub_(mean / std)


def _shown(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"
