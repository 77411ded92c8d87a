"""Elastic training: the full size and smaller ones in every step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from continua._errors import ArgumentError
from continua.transform import Elastic, refine, smoothness

from ._config import Training
from ._size import functions
from ._task import Task


class Sized(nn.Module):
    """An elastic model at one of its sizes, as a task calls it."""

    def __init__(self, model: nn.Module, size: Any):
        super().__init__()
        self.model, self.size = model, size
        self.training = model.training

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The outputs of this size."""
        return self.model(*args, size=self.size, **kwargs)


def elastic(model: nn.Module, training: Training) -> nn.Module:
    """The model with those sizes of the training that it has; the model itself without sizes."""
    if not training.elastic:
        return model
    grown, sizes = model, [functions(model)]
    for _ in training.refine_epochs:
        grown = refine(grown)
        sizes.append(functions(grown))
    for size in sizes:
        if size not in training.elastic:
            raise ArgumentError(
                f"elastic={training.elastic} lacks {size}, which the model has in the course of "
                "the training"
            )
    if max(training.elastic) > (sizes[-1] or 0):
        raise ArgumentError(
            f"elastic={training.elastic} has {max(training.elastic)}, but the model ends with "
            f"{sizes[-1]} functions"
        )
    whole = [n for n in training.elastic if n <= (sizes[-1] or 0)]
    Elastic(grown, whole)  # so that sizes that do not nest are found out before any work
    return Elastic(model, [n for n in whole if n <= (sizes[0] or 0)])


def plain(model: nn.Module) -> nn.Module:
    """The full size of an elastic model; any other model itself."""
    return model.model if isinstance(model, Elastic) else model


def whole_loss(
    full: Tensor,
    task: Task,
    model: nn.Module,
    wrapped: nn.Module,
    batch: Sequence[Tensor],
    training: Training,
    step: int,
) -> Tensor:
    """The loss of a step: the mean over the sizes that it trains, and smoothness.

    Args:
        full: the loss of the full size.
        task: whose loss it is.
        model: that is trained.
        wrapped: what is called in its place, where several processes train it.
        batch: of this step.
        training: the course.
        step: its number.
    """
    if isinstance(model, Elastic):
        others = [task.loss(Sized(wrapped, n), batch)[0] for n in model.trained(step)]
        full = torch.stack([full, *others]).mean()
    if training.smoothness:
        full = full + training.smoothness * smoothness(model)
    return full
