"""Measuring a model on a part of the data."""

from __future__ import annotations

import torch
from torch import nn

from continua._errors import ArgumentError
from continua._values import whole_number
from continua.transform import evaluating

from ._progress import Progress, Watch, silent
from ._task import PartName, Tally, Task


@torch.no_grad()
def evaluate(
    model: nn.Module,
    task: Task,
    part: PartName = "validation",
    *,
    batch_size: int = 500,
    limit: int | None = None,
    device: str | torch.device | None = None,
    watch: Watch = silent,
) -> dict[str, float]:
    """The measures of a model on a part of the data, in evaluation mode.

    Args:
        model: the model; its mode is restored afterwards.
        task: data and measures.
        part: which part. Use the test part once, at the end.
        batch_size: samples at a time; the result does not depend on it.
        limit: the number of samples, from the first; None for all.
        device: of the batches; None for that of the model.
        watch: called after every batch.
    """
    batch_size = whole_number("batch_size", batch_size)
    limit = None if limit is None else whole_number("limit", limit)
    size = task.size(part) if limit is None else min(limit, task.size(part))
    if size == 0:
        raise ArgumentError(f"the {part} part is empty: there is nothing to evaluate on")
    if device is None:
        device = next((p.device for p in model.parameters()), torch.device("cpu"))
    total = Tally()
    with evaluating(model):
        for start in range(0, size, batch_size):
            index = torch.arange(start, min(start + batch_size, size))
            batch = [t.to(device) for t in task.batch(part, index, None)]
            total.merge(task.loss(model, batch)[1])
            watch(Progress("evaluating", min(start + batch_size, size), size))
    return total.means()
