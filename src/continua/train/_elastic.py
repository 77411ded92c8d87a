"""Elastic training: the full size and smaller ones in every step."""

from __future__ import annotations

from typing import Any

from torch import nn

from continua._errors import ArgumentError
from continua.transform import Elastic, refine

from ._config import Training
from ._size import functions


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
    final, sizes = model, [functions(model)]
    for _ in training.refine_epochs:
        final = refine(final)
        sizes.append(functions(final))
    for size in sizes:
        if size not in training.elastic:
            raise ArgumentError(
                f"elastic={training.elastic} lacks {size}, which the model has in the course of "
                "the training"
            )
    if max(training.elastic) > max(filter(None, sizes)):
        raise ArgumentError(
            f"elastic={training.elastic} has {max(training.elastic)}, but the model ends with "
            f"{sizes[-1]} functions"
        )
    Elastic(final, list(training.elastic))  # an error, before any work, if sizes do not nest
    return Elastic(model, [n for n in training.elastic if n <= (sizes[0] or 0)])


def plain(model: nn.Module) -> nn.Module:
    """The full size of an elastic model; any other model itself."""
    return model.model if isinstance(model, Elastic) else model
