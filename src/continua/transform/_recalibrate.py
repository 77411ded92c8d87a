"""Statistics re-estimated, weights untouched."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase

from continua.field import copied

from ._batches import Batches, call, evaluating
from ._blocks import blocks_if_any
from ._warn import warn_negative

M = TypeVar("M", bound=nn.Module)


def recalibrate(model: M, batches: Iterable[Any]) -> M:
    r"""A model whose batch-norm statistics are re-estimated, at every depth.

    Weights that were changed without training, as `compress` does, no longer fit the running
    statistics of the norms behind them. Some forward passes give new ones. Each is the mean over
    the batches, so neither the old values nor the norms' momentum matter:

    .. math:: \sigma = \frac1n \sum_{i=1}^n \Phi^+ \big(\sigma^{(i)}(s_j)\big)_j

    with the statistics of batch i at the depths that the solver visits, and the least squares by
    which a block turns values at depths into coefficients. Norms of blocks and norms outside of
    blocks are treated alike; all else is in evaluation mode. What no evaluation of a block reads
    stays as it was. A model without statistics comes back as a copy. Statistics in few smooth
    functions may come out as negative variances, which is warned of: `compress` them to
    `state_basis=PiecewiseConstant(steps)`.

    Args:
        model: any module; it is not changed.
        batches: inputs without labels, each a tensor, or a tuple or dictionary of what the model
            is called with. A few hundred inputs are enough. Inputs and batch sizes like those of
            the training are best, with its augmentation: the weights fit its statistics.

    Example:
        >>> import continua as ct
        >>> field = nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 2))
        >>> block = ct.ODEBlock(field, ct.PiecewiseConstant(3), ct.Euler(steps=3))
        >>> x = torch.tensor([[0.0, 1.0], [2.0, 5.0]])
        >>> ct.recalibrate(block, [x]).field[0].running_mean[0]
        tensor([1., 3.])
    """
    made = copied(model)
    read = Batches(made, batches)
    reestimate(made, read)
    for name, block in blocks_if_any(made).items():
        warn_negative(name, block)
    return made


@torch.no_grad()
def reestimate(model: nn.Module, batches: Iterable[Any]) -> None:
    """Re-estimate the statistics of a model, in place.

    Args:
        model: whose statistics change.
        batches: of inputs.
    """
    with norms_training(model) as norms:
        if not norms and not any(b.expansion.state for b in blocks_if_any(model).values()):
            return
        for i, batch in enumerate(batches):
            for norm in norms:
                norm.momentum = 1 / (i + 1)  # the mean of all batches so far
            call(model, batch)


@contextmanager
def norms_training(model: nn.Module) -> Iterator[list[_NormBase]]:
    """The norms of a model, set to training with all that has state; as they were afterwards."""
    norms = statistics(model)
    momenta = [norm.momentum for norm in norms]
    with evaluating(model):
        for norm in norms:
            norm.training = True
        for block in blocks_if_any(model).values():
            for name in block.expansion.state:
                block.field.get_submodule(name.rpartition(".")[0]).training = True
        try:
            yield norms
        finally:
            for norm, momentum in zip(norms, momenta, strict=True):
                norm.momentum = momentum


def statistics(model: nn.Module) -> list[_NormBase]:
    """The norms that have statistics, in the order of their names."""
    return [m for m in model.modules() if isinstance(m, _NormBase) and m.track_running_stats]
