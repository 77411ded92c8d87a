"""Tasks: data, a loss and measures."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from continua._errors import ArgumentError, ShapeError
from continua.data import Dataset, Part

PartName = Literal["train", "validation", "test"]
Augment = Callable[[Tensor, torch.Generator], Tensor]
#: the target that PyTorch and Hugging Face ignore
IGNORE = -100


@dataclass
class Tally:
    """Sums of measures, each with the number of values in it."""

    sums: dict[str, float] = field(default_factory=dict)
    counts: dict[str, float] = field(default_factory=dict)

    def add(self, name: str, total: float, count: float) -> None:
        """Add a sum over `count` values."""
        self.sums[name] = self.sums.get(name, 0.0) + total
        self.counts[name] = self.counts.get(name, 0.0) + count

    def merge(self, other: Tally) -> None:
        """Add another tally."""
        for name, total in other.sums.items():
            self.add(name, total, other.counts[name])

    def means(self) -> dict[str, float]:
        """The mean of each."""
        return {name: total / max(self.counts[name], 1.0) for name, total in self.sums.items()}


class Task(ABC):
    """Batches, a loss and measures.

    Attributes:
        measure: the name of the measure by which models are chosen.
        higher: whether more of it is better.
    """

    measure: str = "loss"
    higher: bool = False

    @abstractmethod
    def size(self, part: PartName) -> int:
        """How many samples a part has."""

    def judgements(self, part: PartName, samples: int) -> int:
        """How many predictions the accuracy over the first samples of a part averages."""
        return samples

    @abstractmethod
    def batch(
        self, part: PartName, index: Tensor, generator: torch.Generator | None
    ) -> Sequence[Tensor]:
        """Some samples of a part, on the CPU; with a generator, augmented.

        Args:
            part: which part.
            index: which samples.
            generator: for augmentation, in training.
        """

    @abstractmethod
    def loss(self, model: nn.Module, batch: Sequence[Tensor]) -> tuple[Tensor, Tally]:
        """The loss of a batch to minimise, and its measures."""

    def inputs(self, batch: Sequence[Tensor]) -> Any:
        """The input of a model: a tensor, or a dictionary of keyword arguments."""
        return batch[0]


class Classification(Task):
    """Cross-entropy: one class per sample, or one per position of a sequence.

    A model with a single output is a logit of class 1 against class 0.

    Args:
        dataset: inputs and classes.
        augment: of training inputs, given the raw inputs and a generator.
        label_smoothing: the share of the target spread over all classes, in training.
        ignore: a target that does not count, such as the padding of sentences.
        trim: whether a batch of sentences, padded with zeros at the end, is cut to its longest;
            a model that masks the padding gives the same with less work.
    """

    measure = "accuracy"
    higher = True

    def __init__(
        self,
        dataset: Dataset,
        *,
        augment: Augment | None = None,
        label_smoothing: float = 0.0,
        ignore: int | None = None,
        trim: bool = False,
    ):
        if not 0 <= label_smoothing < 1:
            raise ArgumentError(f"label_smoothing lies in [0, 1), not {label_smoothing!r}")
        self.dataset, self.augment = dataset, augment
        self.ignore = IGNORE if ignore is None else ignore
        self.label_smoothing, self.trim = label_smoothing, trim
        for name in ("train", "validation", "test"):
            _check_targets(self.part(name), dataset.classes, name, ignore)

    def part(self, name: PartName) -> Part:
        """Inputs and targets."""
        part: Part = getattr(self.dataset, name)
        return part

    def size(self, part: PartName) -> int:
        return len(self.part(part))

    def batch(
        self, part: PartName, index: Tensor, generator: torch.Generator | None
    ) -> Sequence[Tensor]:
        data = self.part(part)
        inputs = data.inputs[index]
        if generator is not None and self.augment is not None:
            inputs = self.augment(inputs, generator)
        targets = data.targets[index]
        if self.trim:
            longest = int((inputs != 0).sum(1).max())
            inputs, targets = inputs[:, :longest], targets[:, :longest]
        return self.dataset.prepared(inputs), targets

    def loss(self, model: nn.Module, batch: Sequence[Tensor]) -> tuple[Tensor, Tally]:
        inputs, targets = batch
        logits: Tensor = model(inputs)
        binary, classes = logits.shape[-1] == 1, self.dataset.classes
        if binary:
            fits = logits.numel() == targets.numel() and classes <= 2
        else:
            fits = logits.shape[:-1] == targets.shape and logits.shape[-1] >= classes
        if not fits:
            raise ShapeError(
                f"the model gives {list(logits.shape)} for targets of shape {list(targets.shape)} "
                f"and {classes} classes; it must give one score per class and target"
            )
        smoothing = self.label_smoothing if model.training else 0.0
        loss = binary_classification_loss if binary else classification_loss
        return loss(logits, targets, self.ignore, smoothing)

    def judgements(self, part: PartName, samples: int) -> int:
        return int((self.part(part).targets[:samples] != self.ignore).sum())


def classification_loss(
    logits: Tensor, targets: Tensor, ignore: int = IGNORE, smoothing: float = 0.0
) -> tuple[Tensor, Tally]:
    """The cross-entropy, averaged over the targets that are not ignored, and the accuracy."""
    logits, targets = logits.flatten(0, -2), targets.flatten()
    total = cross_entropy(
        logits, targets, ignore_index=ignore, label_smoothing=smoothing, reduction="sum"
    )
    return _mean(total, logits.detach().argmax(-1), targets, ignore)


def binary_classification_loss(
    logits: Tensor, targets: Tensor, ignore: int, smoothing: float
) -> tuple[Tensor, Tally]:
    """The same for logits of class 1 against class 0."""
    logits, targets = logits.flatten(), targets.flatten()
    shares = targets.to(logits.dtype) * (1 - smoothing) + smoothing / 2
    losses = binary_cross_entropy_with_logits(logits, shares, reduction="none")
    return _mean(losses[targets != ignore].sum(), (logits > 0).long(), targets, ignore)


def _mean(total: Tensor, predictions: Tensor, targets: Tensor, ignore: int) -> tuple[Tensor, Tally]:
    counted = targets != ignore
    count = float(counted.sum())
    tally = Tally()
    tally.add("loss", float(total.detach()), count)
    tally.add("accuracy", float(((predictions == targets) & counted).sum()), count)
    return total / max(count, 1.0), tally  # zero, not NaN, where nothing counts


def _check_targets(part: Part, classes: int, name: str, ignore: int | None) -> None:
    targets = part.targets
    if targets.is_floating_point() or targets.is_complex():
        raise ArgumentError(f"the {name} part has targets of {targets.dtype}, not whole numbers")
    if ignore is not None:
        targets = targets[targets != ignore]
    if targets.numel() == 0:
        return
    low, high = int(targets.min()), int(targets.max())
    if low < 0 or high >= classes:
        bad = low if low < 0 else high
        raise ArgumentError(
            f"the {name} part has the label {bad}, but there are {classes} classes, "
            f"0 to {classes - 1}"
        )
