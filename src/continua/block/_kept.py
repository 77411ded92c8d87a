"""A solve in evaluation mode, made ready to be repeated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn.utils import parametrize

from continua.field import FieldRun, Twin, has_memory
from continua.gradient import has_values, with_finite_end
from continua.solve import Dynamics, Evaluate, Stage, State, Status

if TYPE_CHECKING:
    from ._block import ODEBlock
    from ._dynamics import BlockDynamics


class Kept(Dynamics):
    """A field at the stages of a fixed grid: its weights are views of the coefficients.

    A call of a block makes some 300 Python calls besides its steps. In evaluation mode, where
    every tensor is a coefficient, only the state has to be read again, since an evaluation may
    write to it. `python benchmarks/kept.py` measures what this saves.
    """

    def __init__(self, dynamics: BlockDynamics, run: FieldRun):
        assert dynamics.plan is not None
        self.jumps, z = dynamics.jumps, dynamics.call.problem.z[0]
        self._plan, stages = dynamics.plan, dynamics.plan.stages
        self._like, self._coefficients = (z.dtype, z.device), [*run.coefficients.values()]
        with torch.inference_mode(False), torch.no_grad():
            run.coefficients = {name: t.detach() for name, t in run.coefficients.items()}
            weights = dynamics.weights_at(run, stages, leaves=False)
        self._memory, samplings = [*run.coefficients.values()], dynamics.samplings(run, stages)
        self._state = [
            (own, run.coefficients[n], rules.get(n), samplings[dynamics.expansion.state[n]])
            for rules in (dynamics.expansion.constraints,)
            for n, (_, own) in weights.state.items()
        ]
        calls = run.calls(weights, (), {})
        self._x: list[Tensor] = []
        if dynamics.is_field:
            depths = dynamics.depths(stages)
            calls = [_with(self._x, call, s) for call, s in zip(calls, depths, strict=True)]
        self._evaluate: list[Evaluate] = [_first(calls[0]), *map(_on_leaves, calls[1:])]

    def at(self, stages: Sequence[Stage]) -> Sequence[Evaluate]:
        raise NotImplementedError

    def on_grid(self, stages: Callable[[], Sequence[Stage]]) -> Sequence[Evaluate]:
        return self._evaluate

    def end(self, block: ODEBlock, twin: Twin, x: Tensor) -> Tensor | None:
        """The end of a solve from x; None if it reads other memory, or its end is not finite."""
        if block.plan is not self._plan or (x.dtype, x.device) != self._like:
            return None
        known = self._coefficients
        if not twin.reads(known) or not all(map(Tensor.is_set_to, known, self._memory)):
            return None
        for own, stack, rule, sampling in self._state:
            values = stack if rule is None else rule(stack)
            if sampling.whole and len(values) == len(own):
                own.copy_(values)  # takes a fraction of the time
            else:
                torch.index_select(values, 0, sampling.picks, out=own)
        self._x[:] = (x,)
        try:
            trajectory = block.solver.integrate(self, (x,), block.span)
        finally:
            self._x.clear()
        if with_finite_end(trajectory, block.span[1]).status is not Status.SUCCESS:
            return None
        block.record(trajectory.stats)
        return trajectory.final[0]


def _with(x: Sequence[Tensor], call: Callable[..., Any], s: Tensor) -> Callable[[Any], Any]:
    return lambda z: call(s, z, x[0])


def _on_leaves(call: Callable[[Any], Any]) -> Evaluate:
    return lambda z: (call(z[0]),)


def _first(call: Callable[[Any], Any]) -> Evaluate:
    def evaluate(z: State) -> State:
        out = call(z[0])
        if out.shape != z[0].shape:
            raise ValueError
        return (out,)

    return evaluate


def may_keep(dynamics: BlockDynamics, run: FieldRun) -> bool:
    """Whether the next call can do with what this solve has read."""
    call, problem = dynamics.call, dynamics.call.problem
    return (
        dynamics.plan is not None
        and dynamics.plan.picked
        and not (torch.is_grad_enabled() or problem.repeated or dynamics.noisy)
        and not (call.args or call.kwargs or problem.cost)
        and call.x is problem.z[0]
        and _plain(call.x)
        and all(map(has_memory, run.coefficients.values()))
    )


def _plain(x: Any) -> bool:
    traced = torch._C._get_tracing_state() is not None or parametrize._cache_enabled
    return type(x) is Tensor and has_values(x) and not traced


def repeated(block: ODEBlock, x: Any) -> Tensor | None:
    """The end of a solve by what the last one has kept; None if it has to be done in full."""
    if torch.is_grad_enabled() or not block.twins.keeps or not _plain(x):
        return None
    twin = block.twins.take(block.field, block.expansion)
    try:
        return twin.kept.end(block, twin, x) if isinstance(twin.kept, Kept) else None
    except (RuntimeError, TypeError, ValueError, IndexError):
        return None  # in full, so that a mistake is explained
    finally:
        block.twins.give_back(twin)
