"""What the stages of steps read, and the gradients of it."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from continua.solve import PART, Source, Stage

#: how many numbers the weights of all stages may be, to be worked out together
TOGETHER = 1 << 24


class RowsByStep:
    """What the stages of steps read, worked out for many steps at once."""

    def __init__(self, source: Source, stages: Sequence[Stage], count: int):
        self.source, self.stages, self.count = source, stages, count
        heavy = not source.state and len(stages) * source.numbers > TOGETHER
        self.size = PART if heavy else len(stages) // count
        self.part, self.ready = -1, list[Sequence[Tensor]]()

    def of(self, n: int) -> list[Tensor]:
        part, i = divmod(n, self.size)
        if part != self.part:
            self.ready = []  # freed before the next ones are made
            rows = self.source.rows(self.among(part))
            self.part, self.ready = part, [torch.split(row, self.count) for row in rows]
        return [row[i] for row in self.ready]

    def among(self, part: int) -> Sequence[Stage]:
        """The stages of a part of the steps."""
        width = self.size * self.count
        if width >= len(self.stages):
            return self.stages
        return self.stages[part * width : (part + 1) * width]


class WeightGradients:
    """The gradients of what a field reads besides its state, gathered over steps.

    Args:
        source: of the field.
        before: how many inputs come before the shared ones.
    """

    def __init__(self, source: Source, before: int):
        self.source, self._before = source, before
        self._wanted: Sequence[int] = ()
        self._rows: list[list[Tensor]] = []
        self.shared: dict[int, Tensor] = {}  #: the sums for what is shared, by place

    def add(self, out: Sequence[Tensor], wanted: Sequence[int]) -> None:
        """Add what a program gave for one step: gradients of its inputs at these places.

        Those of the weights are the same for every program.
        """
        if wanted is not self._wanted:
            self._wanted, before = wanted, self._before
            places, first = list(enumerate(wanted)), before + len(self.source.shared)
            last = first + self.source.weights
            self._of_shared = [(at, i - before) for at, i in places if before <= i < first]
            self._of_rows = [(at, i - first) for at, i in places if first <= i < last]
        found = [out[at] for at, _ in self._of_shared]
        if found and self.shared:
            torch._foreach_add_(list(self.shared.values()), found)
        elif found:
            own = (g.clone() for g in found)
            self.shared = dict(zip((i for _, i in self._of_shared), own, strict=True))
        self._rows.append([out[at] for at, _ in self._of_rows])

    def pull(self, stages: Sequence[Stage], backward: bool = False) -> None:
        """Hand the gradients of rows on; `stages` are those of the steps since the last time."""
        if self._rows and self._rows[0]:
            every = zip(*(reversed(self._rows) if backward else self._rows), strict=True)
            found = {i: g for (_, i), g in zip(self._of_rows, every, strict=True)}
            self.source.pull(stages, found)
        self._rows = []
