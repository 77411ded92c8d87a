"""Elastic training: the full size and smaller ones in every step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from continua._errors import ArgumentError
from continua.transform import Elastic, refine, smoothness

from ._config import Training
from ._size import functions
from ._task import Task


class Seen(nn.Module):
    """A model at one of its sizes, that keeps its last outputs.

    Args:
        model: called with `size=`, if there is one.
        size: None for a model of one size, and for the full one.
    """

    def __init__(self, model: nn.Module, size: int | None = None):
        super().__init__()
        self.model, self.size = model, size
        self.training = model.training
        self.outputs: Any = None

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The outputs of this size."""
        if self.size is not None:
            kwargs = {**kwargs, "size": self.size}
        self.outputs = self.model(*args, **kwargs)
        return self.outputs


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


def further_loss(
    task: Task,
    model: nn.Module,
    seen: nn.Module,
    batch: Sequence[Tensor],
    training: Training,
    step: int,
) -> Tensor | None:
    """What a step adds to the loss of the full size: those of smaller sizes, and smoothness.

    Args:
        task: whose loss it is.
        model: that is trained.
        seen: what the task was given, with the outputs of the full size.
        batch: of this step.
        training: the course.
        step: its number.
    """
    found: Tensor | None = None
    if isinstance(seen, Seen) and isinstance(model, Elastic):
        for size in model.trained(step):
            assert isinstance(size, int)
            taught = task.taught(Seen(seen.model, size), batch, seen.outputs)
            found = taught if found is None else found + taught
    if training.smoothness:
        penalty = training.smoothness * smoothness(model)
        found = penalty if found is None else found + penalty
    return found
