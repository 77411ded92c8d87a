"""Which neighbouring layers become one."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from continua.basis import PiecewiseConstant
from continua.block import ODEBlock
from continua.field import copied
from continua.solve import Euler

from ._final import FinalMap
from ._recalibrate import reading
from ._ridge import Ridge


class Group(NamedTuple):
    """Layers that one layer is to replace.

    Attributes:
        start: the first of them.
        end: the first that is no more among them.
        layer: the one whose weights are kept.
    """

    start: int
    end: int
    layer: int


def layers(block: ODEBlock) -> int | None:
    """How many layers a block consists of, each an Euler step of length 1; None if it does not."""
    steps, (start, end) = block.solver.steps, block.span
    bases = {basis for basis in block.expansion.bases.values() if basis.size > 1}
    if not isinstance(block.solver, Euler) or steps is None or bases != {PiecewiseConstant(steps)}:
        return None
    return steps if (start, end) == (0.0, float(steps)) else None


class Costs:
    r"""What it costs to replace layers a to b by one of them with another final map.

    For each a the layers from there on are tried at the larger network's state Z_a, and the final
    map W of layer l is changed so that its step ends near Z_b:

    .. math:: c(a, b) = \min_{l, \Delta W}
              \frac{\|Z_b - Z_a - f_l(Z_a; W_l + \Delta W)\|^2}{\|Z_b\|^2}

    Args:
        block: the layers.
        map: its final map.
        size: into how many groups they fall.
    """

    def __init__(self, block: ODEBlock, final: FinalMap, size: int):
        self._block, self._map = block, final
        self.count = layers(block) or 1
        self.widest = self.count - size + 1
        self.size = size

    def measured(self, calls: Any) -> dict[tuple[int, int], tuple[float, int]]:
        """For each pair (a, b) the cost and the layer.

        Args:
            calls: an iterable of what the block is called with: positional arguments, those by
                name, and whether this is held back.
        """
        found: dict[tuple[int, int], tuple[float, int]] = {}
        for a in range(self.count):
            last = min(self.count, a + self.widest)
            equations: dict[int, Ridge] = {}
            energy = torch.zeros(last - a, dtype=torch.float64)
            for args, kwargs, held in calls():
                ends = [float(s) for s in range(a, last + 1)]
                states = self._block.solve(*args, save_at=ends, **kwargs).z
                if held:
                    energy += states[1:].double().square().flatten(1).sum(1).cpu()
                for l in range(a, last):
                    x, r = self._pairs(l, states, args, kwargs)
                    if l not in equations:
                        equations[l] = Ridge(*(x.shape[0], x.shape[2], r.shape[2]), device=x.device)
                    equations[l].add(x, r, held)
            for l, ridge in equations.items():
                errors = ridge.errors().reshape(last - a, -1).sum(1).cpu()
                for b in range(l + 1, last + 1):
                    cost = float(errors[b - a - 1] / energy[b - a - 1])
                    if cost < found.get((a, b), (math.inf, 0))[0]:
                        found[a, b] = cost, l
        return found

    def _pairs(self, l: int, states: Tensor, args: Any, kwargs: Any) -> tuple[Tensor, Tensor]:
        """Features of layer l at the first state, and the targets of all later ones."""
        block = self._block
        before = {n: block.field.get_buffer(n).clone() for n in block.expansion.state}
        with reading(block), self._map.evaluations() as seen:
            out = block.solve(
                states[0], *args[1:], span=(float(l), l + 1.0), solver=Euler(steps=1), **kwargs
            ).final
        for n, value in before.items():
            block.field.get_buffer(n).copy_(value)
        pairs = [self._map.pairs(seen[0], z - out) for z in states[1:]]
        return pairs[0][0], torch.cat([r for _, r in pairs], -1)

    def groups(self, calls: Any) -> list[Group]:
        """The groups whose costs have the smallest sum, by dynamic programming."""
        found = self.measured(calls)
        best: list[dict[int, tuple[float, list[Group]]]] = [{0: (0.0, [])}]
        for _ in range(self.size):
            row: dict[int, tuple[float, list[Group]]] = {}
            for (a, b), (cost, l) in found.items():
                if a in best[-1]:
                    total = best[-1][a][0] + cost
                    if total < row.get(b, (math.inf, []))[0]:
                        row[b] = total, [*best[-1][a][1], Group(a, b, l)]
            best.append(row)
        return best[-1][self.count][1]
