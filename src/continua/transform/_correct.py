"""Statistics that were read from a few inputs, corrected by those of a larger model."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from continua.basis import Constant, PiecewiseConstant, projection, sample
from continua.block import ODEBlock
from continua.field import copied, tensor

from ._blocks import blocks_if_any, transformed
from ._groups import layer_count
from ._recalibrate import reestimate, statistics

#: the largest factor by which a variance is corrected
RATIO = 4.0
KEYS = MEAN, _ = "running_mean", "running_var"


class Correction:
    r"""What is wrong with statistics that are read from a few inputs, as a larger model shows it.

    A few hundred inputs have other statistics than the training data had: they are few, and may
    not be augmented. The larger model has statistics from the training (index 0). Reading its
    statistics from the same inputs (index 1) shows the difference, which is then removed from those
    of a smaller model:

    .. math:: \mu = \mu_{\text{read}} + \mu_0 - \mu_1, \qquad
              \sigma^2 = \sigma^2_{\text{read}} \; \sigma^2_0 / \sigma^2_1

    So a model that was not cut keeps its statistics, as long as no variance differs by more than
    the factor `RATIO`. Buckets that no evaluation reads are not changed. Statistics in other bases
    are not corrected, because their coefficients are not variances.

    Args:
        model: the larger one; it is not changed.
        batches: of inputs.

    Attributes:
        seen: the larger model with the statistics of these inputs.
    """

    def __init__(self, model: nn.Module, batches: Iterable[Any]):
        self._model = self.seen = model
        if statistics(model):
            self.seen = copied(model)
            reestimate(self.seen, batches)

    @torch.no_grad()
    def __call__(self, small: nn.Module) -> None:
        """Correct the statistics of a smaller model, in place.

        Args:
            small: made from the larger one; its statistics were read from the same inputs.
        """
        if self.seen is self._model:
            return
        old, new = (_carried(small, model) for model in (self._model, self.seen))
        for name, value in small.named_buffers():
            if name not in old:
                continue
            if name.endswith(MEAN):
                value += old[name] - new[name]
            else:
                known = (old[name] > 0) & (new[name] > 0)
                value *= (old[name] / new[name]).clamp(1 / RATIO, RATIO).where(known, 1.0)


def _carried(small: nn.Module, model: nn.Module) -> dict[str, Tensor]:
    """The statistics of a larger model in the bases of a smaller one, by the names of buffers."""
    norms = set(statistics(model))
    found = {
        f"{name}.{key}".lstrip("."): norm.get_buffer(key)
        for name, norm in model.named_modules()
        if norm in norms
        for key in KEYS
    }
    others = blocks_if_any(model)
    for name, block in blocks_if_any(small).items():
        other, kept = others[name], _kept(block, others[name])
        for key, target in block.expansion.state.items():
            full = ".".join(filter(None, (name, "field", key)))
            if not isinstance(target, Constant | PiecewiseConstant):
                found.pop(full, None)
            if full not in found:
                continue
            source, stack = other.expansion.state[key], found[full]
            if kept and source.size > 1:
                value = stack[kept]
            else:
                value = transformed(projection(source, target), stack)
            if block.plan is not None:  # alike in both models, where no evaluation reads
                value[~sample(target, block.plan.points).any(0).to(value.device)] = 1.0
            found[full] = value
    return found


def _kept(small: ODEBlock, large: ODEBlock) -> list[int]:
    """The layer of a larger block that each one of a smaller block was made from, if so.

    A fit keeps the weights of one layer in each group, all but those of the last map.
    """
    if small.span == large.span or layer_count(large) is None:
        return []
    away: Any = 0.0
    for name, basis in large.expansion.weights.items():
        if basis.size > 1:
            ours, theirs = (tensor(one.field, name).flatten(1).double() for one in (small, large))
            away = away + torch.cdist(ours, theirs).square()
    return [int(i) for i in away.argmin(1)]
