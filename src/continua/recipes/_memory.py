"""What training a saved model takes."""

from __future__ import annotations

from dataclasses import dataclass

import continua as ct
from continua.measure import MemoryReport

from ._inputs import InputOptions, model_and_input


@dataclass(frozen=True)
class MemoryOptions(InputOptions):
    """What to measure."""

    evaluation: bool = False
    """Measure in evaluation mode instead of training mode."""

    confirm: bool = False
    """Also measure each method in its own process, which takes seconds each."""


def run_memory(options: MemoryOptions) -> MemoryReport:
    """`ct.memory` of a model on disk."""
    model, x = model_and_input(options)
    model.train(not options.evaluation)
    try:
        return ct.memory(model, x, confirm=options.confirm)
    except RuntimeError as error:
        raise ct.ShapeError(
            f"the model fails on inputs of shape {list(x.shape)}: {error}"
        ) from error
