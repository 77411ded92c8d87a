"""The field of a block in a backward pass."""

from __future__ import annotations

from collections.abc import Sequence
from operator import is_
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch._C._functorch import is_functorch_wrapped_tensor as wrapped

from continua.field import FieldRun
from continua.gradient import requiring_grad
from continua.solve import BackwardField, Reading, Source, Stage

from ._source import BlockSource

if TYPE_CHECKING:
    from ._dynamics import BlockDynamics, Given

#: of devices, where two tensors can be asked whether they are the same memory
KINDS = ("cpu", "cuda", "mps")


class BlockBackwardField(BackwardField):
    """The field once more, with weights, input and arguments as leaves."""

    def __init__(self, dynamics: BlockDynamics, run: FieldRun, given: Given):
        self._dynamics, self._run, self._given = dynamics, run, given
        self._names = list(dynamics.expansion.weights)
        reads_input = dynamics.is_field or dynamics.call.problem.cost is not None
        self._others = [*requiring_grad(given if reads_input else given[1:]), *dynamics.constants]
        super().__init__(len(self._names) + len(self._others))

    def read(self, stages: Sequence[Stage], leaves: bool = True) -> Reading:
        dynamics = self._dynamics
        weights = dynamics.weights_at(self._run, stages, leaves)
        depths = dynamics.depths(stages)
        evaluate = dynamics.evaluations(self._run, weights, depths, self._given)
        rows = [row for _, _, rows in weights.read.values() for row in rows]
        others = self._others if leaves else []
        used: list[list[int]] = [[] for _ in stages]
        first = 0
        for sampling, known, found in weights.read.values():
            place = {row: first + i for i, row in enumerate(known)}
            for row, own in zip(sampling.index, used, strict=True):
                own.append(place[row])
            first += len(found)
        shared = range(len(rows), len(rows) + len(others))

        def accumulate(gradients: Sequence[Tensor | None]) -> None:
            remaining = iter(gradients)
            for name, (sampling, known, _) in weights.read.items():
                found = [(i, g) for i, g in zip(known, remaining, strict=False) if g is not None]
                if found:
                    into = self._into(name)
                    sampling.pulled([i for i, _ in found], [g for _, g in found], into)
            self.accumulate(remaining, first=len(self._names))

        return Reading(evaluate, [*rows, *others], accumulate, [[*own, *shared] for own in used])

    def _into(self, name: str) -> Tensor:
        """Where the gradients of a weight's coefficients are gathered."""
        at = self._names.index(name)
        into = self.gradients[at]
        if into is None:
            like = self._run.coefficients[name]
            into = torch.zeros_like(like, memory_format=torch.contiguous_format)
            self.gradients[at] = into
        return into

    def source(self) -> Source:
        return BlockSource(self._dynamics, self._run, self._given, self._others)


class Unchanged:
    """What must not change between a forward pass and the backward pass that repeats it."""

    def __init__(self, field: nn.Module, tensors: list[Tensor]):
        self._modes, self._tensors = [m.training for m in field.modules()], tensors
        self._versions = [None if t.is_inference() else t._version for t in tensors]
        self._memory = [None if wrapped(t) else t.detach() for t in tensors]

    def same(self, later: Unchanged) -> bool:
        """Whether all is as it was."""
        if (self._modes, self._versions) != (later._modes, later._versions):
            return False
        if not all(map(is_, self._tensors, later._tensors)):
            return False
        return all(
            memory is None or tensor.device.type not in KINDS or tensor.is_set_to(memory)
            for tensor, memory in zip(self._tensors, self._memory, strict=True)
        )
