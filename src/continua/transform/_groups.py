"""Which neighbouring layers become one."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from continua.basis import PiecewiseConstant
from continua.block import ODEBlock
from continua.field import copied
from continua.solve import Euler

from ._batches import Batches, call, held_back, reached, relative_error, replaced
from ._final import FinalMap
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


def layer_count(block: ODEBlock) -> int | None:
    """How many layers a block consists of, as `convert` makes it; None if it is another one."""
    steps, bases = block.solver.steps, block.expansion.bases.values()
    if not isinstance(block.solver, Euler) or block.span != (0.0, float(steps or 0)):
        return None
    return steps if {b for b in bases if b.size > 1} == {PiecewiseConstant(steps or 1)} else None


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
        """So many groups.

        Args:
            size: how many.
        """
        # No group may be so wide that the others are left without a layer, nor twice the mean.
        widest = min(self._count - size + 1, 2 * math.ceil(self._count / size) + 1)
        best: list[dict[int, tuple[float, list[Group]]]] = [{0: (0.0, [])}]
        best += [{} for _ in range(size)]
        for a in range(self._count):
            last = min(self._count, a + widest)
            with norms_training(self._trial):
                costs = self._costs(a, last)
            for group, cost in costs.items():
                for before, after in itertools.pairwise(best):
                    if a not in before:
                        continue
                    total = before[a][0] + cost
                    if total < after.get(group.end, (math.inf, []))[0]:
                        after[group.end] = total, [*before[a][1], group]
        return best[size][self._count][1]

    def _costs(self, a: int, last: int) -> dict[Group, float]:
        """The costs of the groups that begin with layer a and end at the latest before `last`."""
        equations: dict[int, Ridge] = {}
        for i, batch in enumerate(self._batches):
            states, args, kwargs = self._states(batch, a, last)
            for kept in range(a, last):
                out, seen = self._step(kept, states[0], args, kwargs)
                for rows in self._map.slices(out):
                    gaps = (z[rows] - out[rows] for z in states[kept + 1 - a :])
                    x, *targets = self._map.pairs(seen.rows(rows), *gaps)
                    r = torch.cat(targets, -1)
                    if kept not in equations:
                        equations[kept] = Ridge.of(x, r)
                    equations[kept].add(x, r, held_back(i))
        found: dict[int, list[tuple[float, Group, Tensor]]] = {}
        for kept, ridge in equations.items():
            for end, (error, change) in enumerate(ridge.solved(last - kept), kept + 1):
                found.setdefault(end, []).append((error, Group(a, end, kept), change))
        best = (min(same, key=lambda one: one[0]) for same in found.values())
        changes = {group: change for _, group, change in best}
        return self._influence(changes, a)

    def _influence(self, changes: dict[Group, Tensor], a: int) -> dict[Group, float]:
        """The relative error of the output with each group replaced; a single layer has none."""
        costs = dict.fromkeys(changes, 0.0)
        changes = {group: w for group, w in changes.items() if group.end > a + 1}
        for i, batch in enumerate(self._batches):
            if not held_back(i):
                continue
            states, args, kwargs = self._states(batch, a, a)
            target = call(self._teacher, batch)
            for group, change in changes.items():
                with self._map.changed([group.kept], change):
                    z, _ = self._step(group.kept, states[0], args, kwargs)
                left = self._count - group.end
                if left:
                    span = (float(group.end), float(self._count))
                    euler = Euler(steps=left)
                    z = self._block.solve(z, *args[1:], span=span, solver=euler, **kwargs).final
                with replaced(self._block, lambda *_, z=z, **__: z):
                    costs[group] += float(relative_error(call(self._teacher, batch), target))
        return costs

    def _states(self, batch: Any, a: int, last: int) -> tuple[Tensor, Any, Any]:
        """The states Z from Z_a on, and what the block is called with."""
        depths = [float(s) for s in range(a, last + 1)]
        args, kwargs = reached(self._teacher, self._block, batch)
        if a == last == 0:
            return args[0][None], args, kwargs
        span, euler = (0.0, depths[-1]), Euler(steps=last)
        z = self._block.solve(*args, save_at=depths, span=span, solver=euler, **kwargs).z
        return z, args, kwargs

    def _step(self, layer: int, z: Tensor, args: Any, kwargs: Any) -> tuple[Tensor, Any]:
        """One layer at some state, its norms reading the batch, and what its final map is given."""
        with self._map.evaluations() as seen:
            change = self._trial.slope(float(layer), z, *args[1:], **kwargs)
        return z + change, seen[0]
