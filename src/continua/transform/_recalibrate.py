"""Batch-norm statistics re-estimated from a few inputs; weights stay as they are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from continua.basis import Constant, PiecewiseConstant, projection, sample
from continua.block import ODEBlock
from continua.field import copied, tensor

from ._batches import Batches, call, evaluating
from ._blocks import blocks_if_any, change_basis, layer_count
from ._warn import warn_negative

M = TypeVar("M", bound=nn.Module)
#: the largest factor by which a variance is corrected
RATIO = 4.0


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
    """Re-estimate the statistics of a model from batches of inputs, in place."""
    with norms_training(model) as norms:
        if not norms and not any(b.expansion.state for b in blocks_if_any(model).values()):
            return
        for i, batch in enumerate(batches):
            for norm in norms:
                norm.momentum = 1 / (i + 1)  # the mean of all batches so far
            call(model, batch)


@contextmanager
def norms_training(model: nn.Module) -> Iterator[list[_NormBase]]:
    """A model in evaluation mode but for its norms and all else that has state.

    Modes and momenta are as before afterwards.
    """
    norms = [norm for _, norm in _norms(model)]
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


def _norms(model: nn.Module) -> list[tuple[str, _NormBase]]:
    """The norms that have statistics, with their names."""
    norms = [(n, m) for n, m in model.named_modules() if isinstance(m, _NormBase)]
    return [(name, norm) for name, norm in norms if norm.track_running_stats]


class Correction:
    r"""What is wrong with statistics that are read from a few inputs, as a larger model shows it.

    A few hundred inputs have other statistics than the training data: they are few, and may not be
    augmented. The larger model has statistics from the training (index 0). Reading its statistics
    from the same inputs (index 1) shows the difference, which is then removed from those of a
    smaller model:

    .. math:: \mu = \mu_{\text{read}} + \mu_0 - \mu_1, \qquad
              \sigma^2 = \sigma^2_{\text{read}} \; \sigma^2_0 / \sigma^2_1

    So a model that was not cut keeps its statistics, as long as no variance differs by more than
    the factor `RATIO`. Buckets that no evaluation reads are not changed. Statistics in other bases
    are not corrected, because their coefficients are not variances.

    Args:
        model: the larger one; it is not changed.
        batches: of inputs.

    Attributes:
        read: the larger model with the statistics of these inputs.
    """

    def __init__(self, model: nn.Module, batches: Iterable[Any]):
        self._model = self.read = model
        if _norms(model):
            self.read = copied(model)
            reestimate(self.read, batches)

    @torch.no_grad()
    def __call__(self, small: nn.Module) -> None:
        """Correct the statistics of a smaller model, which were read from the same inputs."""
        if self.read is self._model:
            return
        old, new = (_statistics_for(small, model) for model in (self._model, self.read))
        for name, value in small.named_buffers():
            if name not in old:
                continue
            if name.endswith("running_mean"):
                value += old[name] - new[name]
            else:
                known = (old[name] > 0) & (new[name] > 0)
                value *= (old[name] / new[name]).clamp(1 / RATIO, RATIO).where(known, 1.0)


def _statistics_for(small: nn.Module, model: nn.Module) -> dict[str, Tensor]:
    """The statistics of a larger model in the bases of a smaller one, by the names of buffers."""
    found = {
        f"{name}.{key}".lstrip("."): norm.get_buffer(key)
        for name, norm in _norms(model)
        for key in ("running_mean", "running_var")
    }
    others = blocks_if_any(model)
    for name, block in blocks_if_any(small).items():
        other, layers = others[name], _source_layers(block, others[name])
        for key, target in block.expansion.state.items():
            full = ".".join(filter(None, (name, "field", key)))
            if not isinstance(target, Constant | PiecewiseConstant):
                found.pop(full, None)
            if full not in found:
                continue
            source, stack = other.expansion.state[key], found[full]
            if layers and source.size > 1:
                value = stack[layers]
            else:
                value = change_basis(projection(source, target), stack)
            if block.plan is not None:  # the same in both models where no evaluation reads
                value[~sample(target, block.plan.points).any(0).to(value.device)] = 1.0
            found[full] = value
    return found


def _source_layers(small: ODEBlock, large: ODEBlock) -> list[int]:
    """The layer of a larger block that each layer of a smaller one was made from; else none.

    A fit keeps the weights of one layer of each group, all but those of the last map.
    """
    if small.span == large.span or layer_count(large) is None:
        return []
    distances: Any = 0.0
    for name, basis in large.expansion.weights.items():
        if basis.size > 1:
            ours, theirs = (tensor(one.field, name).flatten(1).double() for one in (small, large))
            distances = distances + torch.cdist(ours, theirs).square()
    return [int(i) for i in distances.argmin(1)]
