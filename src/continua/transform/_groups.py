"""Which neighbouring layers become one."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from continua.block import ODEBlock
from continua.field import copied
from continua.solve import Euler

from ._batches import Batches, Inputs, call, held_back, inputs_of, relative_error, replace_forward
from ._blocks import layer_count
from ._final import Evaluation, FinalMap
from ._recalibrate import norms_training
from ._ridge import Ridge


class Group(NamedTuple):
    """Neighbouring layers that one of them is to replace.

    Attributes:
        start: the first of them.
        end: the layer behind the last.
        kept: the one whose weights are kept.
    """

    start: int
    end: int
    kept: int


class Grouping:
    r"""Groups of neighbouring layers, chosen by what their replacement does to the output.

    A group of the layers a to b - 1 is replaced by one of them, whose final map W is changed so
    that its step from the state :math:`Z_a` ends near :math:`Z_b`,

    .. math:: \min_{l, \Delta W} \|Z_b - Z_a - f_l(Z_a;\, W_l + \Delta W)\|^2

    The cost of a group is the relative error of the model's output when this group alone is
    replaced, on the batches held back. The groups with the smallest sum of costs are found by
    dynamic programming.

    Args:
        teacher: the model.
        block: the layers in it.
        make_map: gives the final map of a copy of the block.
        batches: of inputs.
    """

    def __init__(
        self,
        teacher: nn.Module,
        block: ODEBlock,
        make_map: Callable[[ODEBlock], FinalMap],
        batches: Batches,
    ):
        self._teacher, self._block, self._batches = teacher, block, batches
        self._trial = copied(block)
        self._map = make_map(self._trial)
        self._count = layer_count(block) or 1

    def groups(self, size: int) -> list[Group]:
        """The best groups, as many as `size`."""
        # No group may be so wide that the others are left without a layer, nor twice the mean.
        widest = min(self._count - size + 1, 2 * math.ceil(self._count / size) + 1)
        # For 0, 1, ... groups, by the layer behind them: the smallest cost, and the groups.
        best: list[dict[int, tuple[float, list[Group]]]] = [{0: (0.0, [])}]
        best += [{} for _ in range(size)]
        for a in range(self._count):
            with norms_training(self._trial):
                costs = self._costs(a, min(self._count, a + widest))
            for group, cost in costs.items():
                for before, after in itertools.pairwise(best):
                    if a not in before:
                        continue
                    total = before[a][0] + cost
                    if total < after.get(group.end, (math.inf, []))[0]:
                        after[group.end] = total, [*before[a][1], group]
        return best[size][self._count][1]

    def _costs(self, a: int, last: int) -> dict[Group, float]:
        """The costs of the groups of the layers a to b - 1, for b up to `last`."""
        equations: dict[int, Ridge] = {}
        for i, batch in enumerate(self._batches):
            states, inputs = self._states(batch, a, last)
            for kept in range(a, last):
                out, evaluation = self._step(kept, inputs.with_state(states[0]))
                for rows in self._map.slices(out):
                    gaps = (z[rows] - out[rows] for z in states[kept + 1 - a :])
                    x, *targets = self._map.pairs(evaluation.rows(rows), *gaps)
                    r = torch.cat(targets, -1)
                    if kept not in equations:
                        equations[kept] = Ridge(x, r)
                    equations[kept].add(x, r, held_back(i))
        found: dict[int, list[tuple[float, Group, Tensor]]] = {}
        for kept, ridge in equations.items():
            for end, (error, change) in enumerate(ridge.solve(last - kept), kept + 1):
                found.setdefault(end, []).append((error, Group(a, end, kept), change))
        best = (min(same, key=lambda one: one[0]) for same in found.values())
        return self._output_errors(a, {group: change for _, group, change in best})

    def _output_errors(self, a: int, changes: dict[Group, Tensor]) -> dict[Group, float]:
        """The relative error of the output with each group replaced; a single layer has none."""
        costs = dict.fromkeys(changes, 0.0)
        before = self._map.tensors()
        for i, batch in enumerate(self._batches):
            if not held_back(i):
                continue
            states, inputs = self._states(batch, a, a)
            target = call(self._teacher, batch)
            for group, change in changes.items():
                if group.end == a + 1:
                    continue
                self._map.change([group.kept], change)
                z, _ = self._step(group.kept, inputs.with_state(states[0]))
                self._map.set(before)
                if left := self._count - group.end:
                    span = (float(group.end), float(self._count))
                    rest = inputs.with_state(z).solve(
                        self._block, span=span, solver=Euler(steps=left)
                    )
                    z = rest.final
                with replace_forward(self._block, lambda *_, z=z, **__: z):
                    costs[group] += float(relative_error(call(self._teacher, batch), target))
        return costs

    def _states(self, batch: Any, a: int, last: int) -> tuple[Tensor, Inputs]:
        """The states Z from Z_a to Z_last, and what the block is called with."""
        depths = [float(s) for s in range(a, last + 1)]
        inputs = inputs_of(self._teacher, self._block, batch)
        if last == 0:
            return inputs.args[0][None], inputs
        span, euler = (0.0, depths[-1]), Euler(steps=last)
        return inputs.solve(self._block, save_at=depths, span=span, solver=euler).z, inputs

    def _step(self, layer: int, inputs: Inputs) -> tuple[Tensor, Evaluation]:
        """The state behind one layer, its norms reading the batch, and the evaluation of it."""
        with self._map.evaluations() as found:
            change = self._trial.slope(float(layer), *inputs.args, **inputs.kwargs)
        return inputs.args[0] + change, found[0]
