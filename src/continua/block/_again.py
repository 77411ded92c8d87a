"""The field of a block in a backward pass."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from operator import is_
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from continua.field import FieldRun, StageWeights, has_memory
from continua.solve import BackwardField, Reading, Source, Stage

from ._source import BlockSource

if TYPE_CHECKING:
    from ._dynamics import BlockDynamics, Given


class BlockBackwardField(BackwardField):
    """The field once more, with weights, input and arguments as leaves."""

    def __init__(self, dynamics: BlockDynamics, run: FieldRun, given: Given):
        self._dynamics, self._run, self._given = dynamics, run, given
        self._names, self._others = list(dynamics.expansion.weights), dynamics.others(given)
        super().__init__(len(self._names) + len(self._others))

    def read(self, stages: Sequence[Stage], leaves: bool = True) -> Reading:
        dynamics = self._dynamics
        weights = dynamics.weights_at(self._run, stages, leaves)
        evaluate = dynamics.evaluations(self._run, weights, dynamics.depths(stages), self._given)
        values: list[Tensor] = []
        used: list[list[int]] = [[] for _ in stages]
        for read in weights.leaves.values():
            place = {row: len(values) + i for i, row in enumerate(read.rows)}
            values += read.values
            for own, row in zip(used, read.sampling.index, strict=True):
                own.append(place[row])
        others = self._others if leaves else []
        shared = range(len(values), len(values) + len(others))
        accumulate = functools.partial(self._accumulate, weights)
        return Reading(evaluate, [*values, *others], accumulate, [[*own, *shared] for own in used])

    def _accumulate(self, weights: StageWeights, gradients: Sequence[Tensor | None]) -> None:
        remaining = iter(gradients)
        for name, read in weights.leaves.items():
            own = zip(read.rows, itertools.islice(remaining, len(read.rows)), strict=True)
            found = {row: gradient for row, gradient in own if gradient is not None}
            if found:
                read.sampling.pull([*found], [*found.values()], self._gradient(name))
        self.accumulate(remaining, first=len(self._names))

    def _gradient(self, name: str) -> Tensor:
        """The tensor that sums the gradients of a weight's coefficients."""
        place = self._names.index(name)
        into = self.gradients[place]
        if into is None:
            like = self._run.coefficients[name]
            into = torch.zeros_like(like, memory_format=torch.contiguous_format)
            self.gradients[place] = into
        return into

    def source(self) -> Source:
        return BlockSource(self._dynamics, self._run, self._given, self._others)


class FieldVersion:
    """What must be the same in a forward pass and in the backward pass that repeats it."""

    def __init__(self, field: nn.Module, tensors: list[Tensor]):
        self._modes, self._tensors = [m.training for m in field.modules()], tensors
        self._versions = [None if t.is_inference() else t._version for t in tensors]
        # Assigning to `.data` changes the memory and not the version.
        self._memory = [t.detach() if has_memory(t) else None for t in tensors]

    def same(self, later: FieldVersion) -> bool:
        """Whether all is as it was."""
        memory = zip(self._tensors, self._memory, strict=True)
        return (
            (self._modes, self._versions) == (later._modes, later._versions)
            and all(map(is_, self._tensors, later._tensors))
            and all(known is None or tensor.is_set_to(known) for tensor, known in memory)
        )
