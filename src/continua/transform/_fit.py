"""A smaller model fitted to what the larger one does."""

from __future__ import annotations

import functools
import logging
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from continua._errors import ArgumentError, ModuleError
from continua.basis import PiecewiseConstant, sample
from continua.block import ODEBlock
from continua.field import tensor
from continua.solve import Dynamics, Euler, Evaluate, Stage

from ._batches import Batches, Inputs, call, held_back, inputs_of, record_calls
from ._blocks import blocks, layer_count, step_ends
from ._final import Evaluation, FinalMap
from ._groups import Grouping
from ._recalibrate import norms_training, reestimate
from ._ridge import Ridge
from ._stack import as_blocks

LOG = logging.getLogger(__name__)


@torch.no_grad()
def fit_blocks(
    teacher: nn.Module,
    small: nn.Module,
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
    Basis functions that no step has in common with others are fitted by themselves, in the order
    of their steps, so that later ones see the states that the fitted ones lead to. Functions that
    share several steps are fitted once per step, as long as the error on the batches held back
    falls. Norms read the batch meanwhile; their statistics are re-estimated at the end.

    Args:
        teacher: the larger model.
        small: the smaller one, with other bases and solvers already, and weights to start from;
            layers that `convert` took are grouped, and start from those that are kept.
        batches: of inputs.
        final: a pattern of the map to change; None takes the last one that a field calls.
    """
    teacher.eval()
    with as_blocks(teacher, small):
        with norms_training(small):
            names = _call_order(small, next(iter(batches)))
            # All are made first: a block that cannot be fitted is refused before the work.
            for fit in [_BlockFit(name, teacher, small, batches, final) for name in names]:
                fit.run()
        reestimate(small, batches)


class _BlockFit:
    """The fit of a block of a smaller model to its counterpart in the larger one."""

    def __init__(
        self, name: str, teacher: nn.Module, small: nn.Module, batches: Batches, final: str | None
    ):
        self.teacher, self.small, self.batches = teacher, small, batches
        self.block, self.other = blocks(small)[name], blocks(teacher)[name]
        inputs = inputs_of(small, self.block, next(iter(batches)))
        state = inputs.args[0] if inputs.args else None
        if not isinstance(state, Tensor) or state.is_complex():
            raise ModuleError(
                f"block {name!r} has a state that is no real tensor: it cannot be fitted"
            )
        self.make_map = functools.partial(FinalMap, name=name, inputs=inputs, final=final)
        self.map = self.make_map(self.block)
        self._split()
        start, end = self.other.span
        width = (end - start) / (self.depths[-1] - self.depths[0])
        self.targets = [start + width * (depth - self.depths[0]) for depth in self.depths]
        weights = [weights for part in self.parts for _, weights in part.steps]
        if self.map.norm and any(len(w) > 1 or w.any(0).sum() > 1 for w in weights):
            raise ModuleError(
                f"the field of block {name!r} ends in a layer norm, and is fitted with Euler steps "
                f"of one bucket each, not {self.block.solver!r} and "
                f"{self.block.expansion.weights[self.map.weight]!r}"
            )

    def _split(self) -> None:
        """Find the ends of the steps, and the parts into which the fit falls."""
        block, solver = self.block, self.block.solver
        basis = block.expansion.weights[self.map.weight]
        if block.plan is None or solver.steps is None:
            raise ArgumentError(
                f"{solver!r} chooses its own steps, and method='fit' needs a fixed grid; give "
                "steps= or another solver"
            )
        self.depths = [block.span[0], *step_ends(block)]
        points = block.plan.points
        zero = torch.zeros(len(points), dtype=torch.float64)
        slopes = _Slopes(len(points), block.stretch.jumps)
        saved = solver.integrate(slopes, (zero,), block.span, self.depths).saved
        ends = torch.stack([z for (z,) in saved])  # [N + 1, S]
        weights = torch.einsum("ns,sk->nks", ends[1:] - ends[:-1], sample(basis, points))
        weights[weights.abs() < 1e-12 * weights.abs().max()] = 0  # [N, K, S]
        self.parts: list[_Part] = []
        for functions in _connected(weights.any(-1)):
            read = enumerate(weights[:, functions])
            self.parts.append(_Part(functions, [(n, w) for n, w in read if bool(w.any())]))

    def run(self) -> None:
        """Change the map of the block, in place."""
        self._group_layers()
        for part in self.parts:
            count, least, tensors = len(part.steps), math.inf, self.map.tensors()
            # With one step the error of a change is known without trying it.
            for sweep in range(count + (count > 1)):
                ridge = self._equations(part)
                if ridge.held_error >= least:
                    self.map.set(tensors)
                    break
                least, tensors = ridge.held_error, self.map.tensors()
                if sweep < count:
                    self.map.change(part.functions, ridge.solve()[0][1])

    def _group_layers(self) -> None:
        """Start from layers that are kept for groups of them, if the block is made of layers."""
        old, new = layer_count(self.other), self.block.solver.steps
        if old is None or new is None or new >= old or not isinstance(self.block.solver, Euler):
            return
        basis = PiecewiseConstant(new)
        varying = [name for name, b in self.other.expansion.bases.items() if b.size > 1]
        if any(self.block.expansion.bases[name] != basis for name in varying):
            return
        groups = Grouping(self.teacher, self.other, self.make_map, self.batches).groups(new)
        LOG.info("groups of layers: %s", groups)
        kept = [group.kept for group in groups]
        stacks = {name: (basis, tensor(self.other.field, name)[kept].detach()) for name in varying}
        self.block.rebase(stacks, span=(0.0, float(new)))
        self._split()
        self.targets = [0.0, *(float(group.end) for group in groups)]

    def _equations(self, part: _Part) -> Ridge:
        """The equations of some basis functions."""
        equations: Ridge | None = None
        first, last = part.steps[0][0], part.steps[-1][0]
        depths, targets = (d[first + 1 : last + 2] for d in (self.depths, self.targets))
        for i, batch in enumerate(self.batches):
            inputs = inputs_of(self.small, self.block, batch)
            with self.map.evaluations() as evaluations:
                here = _states(self.block, depths, inputs)
            inputs = inputs_of(self.teacher, self.other, batch)
            gaps = _states(self.other, targets, inputs) - here
            for n, weights in part.steps:  # [k, S]
                gap = gaps[n - first]
                for rows in self.map.slices(gap):
                    some = [evaluation.rows(rows) for evaluation in evaluations]
                    x, r = self._pairs(some, weights, gap[rows])
                    equations = equations or Ridge(x, r)
                    equations.add(x, r, held_back(i))
        assert equations is not None
        return equations

    def _pairs(
        self, evaluations: Sequence[Evaluation], weights: Tensor, gap: Tensor
    ) -> tuple[Tensor, Tensor]:
        """What a step is a linear function of, d features for each basis function, and the gap."""
        used = weights.any(0).nonzero().flatten().tolist()
        if self.map.norm:  # one evaluation and one function per step
            weight = float(weights[0, used[0]])
            x, r = self.map.pairs(evaluations[used[0]], gap / weight)
            return x * weight, r * weight
        total: Any = 0.0
        for j in used:
            features = self.map.features(evaluations[j].x).unsqueeze(2)  # [g, N, 1, d]
            total = total + features * weights[:, j, None].to(features)  # [g, N, k, d]
        return total.flatten(2), self.map.targets(gap)


class _Part(NamedTuple):
    """Basis functions that no step has in common with others.

    Attributes:
        functions: which they are.
        steps: the steps that read them, each with the weight of each evaluation, `[k, S]`.
    """

    functions: list[int]
    steps: list[tuple[int, Tensor]]


def _states(block: ODEBlock, depths: list[float], inputs: Inputs) -> Any:
    """The states at some depths, by no more steps than these need."""
    start, end = block.span
    solver = block.solver
    if solver.steps is not None:
        width = (end - start) / solver.steps
        count = math.ceil((depths[-1] - start) / width - 1e-6)
        end, solver = start + count * width, solver.with_steps(count)
        depths = [min(depth, end) for depth in depths]
    return inputs.solve(block, save_at=depths, span=(start, end), solver=solver).z


def _connected(reads: Tensor) -> list[list[int]]:
    """Functions that are linked by steps which read several of them; those never read are left out.

    Whether a step reads a function is given in `reads`, `[N, K]`.
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


def _call_order(model: nn.Module, batch: Any) -> list[str]:
    """The blocks of a model in the order in which a forward calls them, each once."""
    known = blocks(model)
    with record_calls(known) as called:
        call(model, batch)
    for name in known:
        if called.count(name) != 1:
            raise ModuleError(
                f"a forward calls block {name!r} {called.count(name)} times; method='fit' is for "
                "blocks that are called once"
            )
    return called
