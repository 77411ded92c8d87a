"""The backward pass over the steps of an adaptive solve, which have kept what it needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from continua.solve import Source, Stage, State

from ._programs import contiguous
from ._rows import TOGETHER, WeightGradients
from ._steps import Kept


@dataclass
class Tape:
    """First slopes and accepted steps in order, without the tensors that they have kept."""

    kept: Sequence[Kept]
    weights: WeightGradients
    source: Source

    def backward(self, tensors: Sequence[Tensor], a: State) -> State:
        """The gradient of the state at the start from that at the end."""
        n, last = len(a), len(tensors)
        of_slope: State = ()  # the gradient of the slope at which the step after starts
        stages: list[Sequence[Stage]] = []
        for kept in reversed(self.kept):
            own, last = tensors[last - kept.size : last], last - kept.size
            back, wanted = kept.program.back, kept.program.wanted
            assert back is not None
            if not kept.is_step:
                if not of_slope:
                    continue  # the step was not accepted
                found = _wanted(back([*own, *of_slope]), wanted)
                # The slope may depend on a part of the state only.
                parts = dict(zip(wanted, found, strict=True))
                a = tuple(x + parts[i] if i in parts else x for i, x in enumerate(a))
                of_slope = ()
            else:
                along = [*a]
                if kept.fsal:
                    along += of_slope or map(torch.zeros_like, a)
                found = _wanted(back([*own, *along]), wanted)
                a, of_slope = contiguous(found[:n]), contiguous(found[-n:])
            self.weights.add(found, wanted)
            stages.append(kept.stages)
            if sum(map(len, stages)) * self.source.numbers > TOGETHER:
                self._pull(stages)
        self._pull(stages)
        return a

    def _pull(self, stages: list[Sequence[Stage]]) -> None:
        self.weights.pull([s for every in reversed(stages) for s in every], backward=True)
        stages.clear()


def _wanted(out: Sequence[Tensor], places: Sequence[int]) -> list[Tensor]:
    return [out[i] for i in places]
