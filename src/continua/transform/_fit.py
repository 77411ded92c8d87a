"""A smaller model fitted to what the larger one does."""

from __future__ import annotations

import functools
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from continua._errors import ArgumentError, ModuleError
from continua.basis import Basis, PiecewiseConstant, sample
from continua.block import ODEBlock
from continua.field import put, tensor
from continua.solve import Dynamics, Euler, Evaluate, Stage

from ._batches import Batches, call, held_back, reached
from ._blocks import blocks
from ._final import FinalMap, Seen
from ._groups import Grouping, layer_count
from ._recalibrate import reestimate
from ._ridge import Ridge
from ._stack import as_blocks

Stacks = Mapping[str, tuple[Basis, Tensor]]
LOG = logging.getLogger(__name__)


@torch.no_grad()
def fit_blocks(
    teacher: nn.Module,
    small: nn.Module,
    starts: Mapping[str, Sequence[Stacks]],
    batches: Batches,
    final: str | None = None,
) -> None:
    r"""Fit the blocks of a smaller model to the trajectories of a larger one, in place.

    Block by block, in the order in which the model calls them. With the states z of the smaller
    network and those Z of the larger one at the ends of the smaller one's steps, the final map W
    of the field is changed by

    .. math:: \min_{\Delta W} \sum_{x, n} \Big\| Z_{n+1} - z_{n+1}
              - \sum_j D_{nj} \sum_k \phi_k(s_j) \Delta W_k h_j \Big\|^2
              + \lambda \|\Delta W\|^2

    where h_j is what the map is given at evaluation j, and D how the solver adds slopes to steps.
    An earlier step changes the states of later ones, so this is repeated once per step; the
    statistics are read again each time, and what has the smallest error on the batches held back
    is kept.

    Args:
        teacher: the larger model.
        small: the smaller one, with other bases and solvers already.
        starts: for each block the coefficients to start from, of which the best is kept; layers
            that `convert` took are grouped instead, and start from those that are kept.
        batches: of inputs.
        final: a pattern of the map to change; None takes the last one that a field calls.
    """
    modes = [module.training for module in small.modules()]
    teacher.eval()
    small.eval()
    with as_blocks(teacher, small):
        reestimate(small, batches)
        for name in _in_order(small, next(iter(batches))):
            pair = _Pair(name, teacher, small, batches, final)
            kept = pair.grouped()
            found = []
            for stacks in starts[name] if kept is None else [kept]:
                pair.block.rebase(stacks)
                found.append(pair.fitted())
            _, best = min(found, key=lambda one: one[0])
            pair.set(best)
            reestimate(small, batches)
    for module, mode in zip(small.modules(), modes, strict=True):
        module.training = mode


class _Pair:
    """One block of a smaller model and its counterpart in the larger one."""

    def __init__(
        self, name: str, teacher: nn.Module, small: nn.Module, batches: Batches, final: str | None
    ):
        self.teacher, self.small, self.batches = teacher, small, batches
        self.block, self.other = blocks(small)[name], blocks(teacher)[name]
        args, kwargs = reached(small, self.block, next(iter(batches)))
        if not isinstance(args[0] if args else None, Tensor):
            raise ModuleError(f"block {name!r} has a state that is no tensor: it cannot be fitted")
        self._map_of = functools.partial(FinalMap, name=name, args=args, kwargs=kwargs, final=final)
        self.map = self._map_of(self.block)
        self.basis = self.block.expansion.weights[self.map.weight]
        self.depths, self.parts = _parts(self.block, self.basis)
        start, end = self.other.span
        width = (end - start) / (self.depths[-1] - self.depths[0])
        self.targets = [start + width * (depth - self.depths[0]) for depth in self.depths]
        if self.map.norm and any(len(w) > 1 or w.any(0).sum() > 1 for w in self._weights()):
            raise ModuleError(
                f"the field of block {name!r} ends in a layer norm, and is fitted with Euler "
                f"steps of one bucket each, not {self.block.solver!r} and {self.basis!r}"
            )

    def _weights(self) -> list[Tensor]:
        return [weights for part in self.parts for _, weights in part.steps]

    def grouped(self) -> Stacks | None:
        """Layers that are kept for groups of them, if this is what the block is made of."""
        old, new = layer_count(self.other), self.block.solver.steps
        if old is None or new is None or new >= old:
            return None
        basis = PiecewiseConstant(new)
        others = {b for b in self.block.expansion.bases.values() if b.size > 1} - {basis}
        if others or not isinstance(self.block.solver, Euler):
            return None
        grouping = Grouping(self.teacher, self.other, self._map_of, self.batches)
        groups = grouping.groups(new)
        LOG.info("groups of layers: %s", groups)
        self.block.rebase({}, span=(0.0, float(new)))
        self.depths, self.parts = _parts(self.block, self.basis)
        self.targets = [0.0, *(float(group.end) for group in groups)]
        rows = [group.kept for group in groups]
        return {
            name: (basis, tensor(self.other.field, name)[rows].detach())
            for name, old_basis in self.other.expansion.bases.items()
            if old_basis.size > 1
        }

    def fitted(self) -> tuple[float, dict[str, Tensor]]:
        """The smallest error on the batches held back, and the tensors that have it."""
        reestimate(self.small, self.batches, until=self.block)
        best, kept = math.inf, self._tensors()
        for sweep in range(len(self.depths)):
            error, equations = self._accumulated()
            if error < best:
                best, kept = error, self._tensors()
            if sweep < len(self.depths) - 1:
                for part, ridge in zip(self.parts, equations, strict=True):
                    self.map.change(part.functions, ridge.solved()[0][1])
                reestimate(self.small, self.batches, until=self.block)
        return best, kept

    def _tensors(self) -> dict[str, Tensor]:
        names = [*self.block.expansion.bases]
        return {name: tensor(self.block.field, name).detach().clone() for name in names}

    def set(self, tensors: Mapping[str, Tensor]) -> None:
        """Give the block other coefficients of the same bases."""
        for name, value in tensors.items():
            put(self.block.field, self.block.expansion.names(name), value)

    def _accumulated(self) -> tuple[float, list[Ridge]]:
        """The error on the batches held back, and the equations of each part."""
        equations: list[Ridge] = []
        error = 0.0
        for i, batch in enumerate(self.batches):
            held = held_back(i)
            args, kwargs = reached(self.small, self.block, batch)
            with self.map.evaluations() as seen:
                here = self.block.solve(*args, save_at=self.depths, **kwargs).z
            args, kwargs = reached(self.teacher, self.other, batch)
            there = self.other.solve(*args, save_at=self.targets, **kwargs).z
            for at, part in enumerate(self.parts):
                for n, weights in part.steps:  # [k, S]
                    gap = there[n + 1] - here[n + 1]
                    for rows in self.map.slices(gap):
                        x, r = self._pairs([one.rows(rows) for one in seen], weights, gap[rows])
                        if len(equations) <= at:
                            equations.append(Ridge.of(x, r))
                        equations[at].add(x, r, held)
                    if held and n == len(self.depths) - 2:
                        error += float(gap.double().square().sum())
        return error, equations

    def _pairs(self, seen: Sequence[Seen], weights: Tensor, gap: Tensor) -> tuple[Tensor, Tensor]:
        """What a step is a linear function of, for each basis function d features, and the gap."""
        used = weights.any(0).nonzero().flatten().tolist()
        if self.map.norm:  # one evaluation and one function per step
            x, r = self.map.pairs(seen[used[0]], gap / float(weights[0, used[0]]))
            return x * float(weights[0, used[0]]), r * float(weights[0, used[0]])
        features = torch.stack([self.map.features(seen[j].x) for j in used], -1)  # [g, N, d, j]
        x = (features @ weights[:, used].T.to(features)).mT.flatten(2)  # [g, N, k * d]
        return x, self.map.targets(gap)


class _Part(NamedTuple):
    """Basis functions that no step has in common with others.

    Attributes:
        functions: which they are.
        steps: the steps that read them, each with the weight of each evaluation, `[k, S]`.
    """

    functions: list[int]
    steps: list[tuple[int, Tensor]]


def _parts(block: ODEBlock, basis: Basis) -> tuple[list[float], list[_Part]]:
    """The ends of a block's steps, and the parts into which a fit of its coefficients falls."""
    plan, steps = block.plan, block.solver.steps
    if plan is None or steps is None:
        raise ArgumentError(
            f"{block.solver!r} chooses its own steps, and method='fit' needs a fixed grid; give "
            "steps= or another solver"
        )
    start, end = block.span
    depths = [start + (end - start) * n / steps for n in range(steps + 1)]
    count = len(plan.points)
    zero = torch.zeros(count, dtype=torch.float64)
    solved = block.solver.integrate(
        _Slopes(count, block.stretch.jumps), (zero,), block.span, depths
    )
    ends = torch.stack([z for (z,) in solved.saved])  # [N + 1, S]
    slopes = ends[1:] - ends[:-1]
    weights = torch.einsum("ns,sk->nks", slopes, sample(basis, plan.points))  # [N, K, S]
    weights[weights.abs() < 1e-12 * weights.abs().max()] = 0
    parts: list[_Part] = []
    for functions in _connected(weights.any(-1)):
        read = [(n, weights[n, functions]) for n in range(steps)]
        parts.append(_Part(functions, [(n, w) for n, w in read if bool(w.any())]))
    return depths, parts


def _connected(reads: Tensor) -> list[list[int]]:
    """Functions that are linked by steps which read several of them; those never read are left out.

    Args:
        reads: whether a step reads a function, `[N, K]`.
    """
    found: list[set[int]] = []
    for row in reads:
        linked = set(row.nonzero().flatten().tolist())
        apart = [one for one in found if not one & linked]
        joined = linked.union(*(one for one in found if one & linked))
        found = [*apart, joined] if joined else apart
    return [sorted(one) for one in found]


class _Slopes(Dynamics):
    """A field whose evaluation j is the unit vector j: a solution is the weights of all slopes."""

    def __init__(self, count: int, jumps: tuple[float, ...]):
        self.jumps = jumps
        self._rows = torch.eye(count, dtype=torch.float64).unbind(0)

    def at(self, stages: Sequence[Stage]) -> Sequence[Evaluate]:
        return [lambda _, row=row: (row,) for row in self._rows]  # type: ignore[misc]

    def on_grid(self, stages: Callable[[], Sequence[Stage]]) -> Sequence[Evaluate]:
        return self.at(())


def _in_order(model: nn.Module, batch: Any) -> list[str]:
    """The blocks of a model in the order in which a forward calls them, each once."""
    called: list[str] = []
    known = blocks(model)
    handles = [
        block.register_forward_pre_hook(lambda _m, _a, name=name: called.append(name))
        for name, block in known.items()
    ]
    try:
        call(model, batch)
    finally:
        for handle in handles:
            handle.remove()
    for name in known:
        if called.count(name) != 1:
            raise ModuleError(
                f"a forward calls block {name!r} {called.count(name)} times; method='fit' is for "
                "blocks that are called once"
            )
    return called
