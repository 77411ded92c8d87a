"""Solutions at any depth, and events."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from continua._errors import ArgumentError, ShapeError
from continua.solve import (
    EveryStep,
    Interpolant,
    RungeKutta,
    Solution,
    Solver,
    State,
    Status,
    Trajectory,
    check_depths,
)

from ._checks import SaveAt, checked_depths
from ._problem import Problem, real

#: bisections of a step that locate an event to double precision
HALVINGS = 60


def depths_tensor(save_at: SaveAt, problem: Problem, solver: Solver) -> Tensor:
    """The depths to save as a tensor, `[T]`, or `[B, T]` with a row per sample."""
    if not isinstance(save_at, Tensor):
        return torch.tensor(checked_depths(save_at, problem.span, solver), dtype=torch.float64)
    if save_at.dim() not in (1, 2):
        raise ShapeError(f"save_at has shape [T] or [B, T], not {list(save_at.shape)}")
    check_depths(save_at, problem.span, [leaf.shape for leaf in problem.z])
    return save_at


def dense_solution(
    trajectory: Trajectory, every: EveryStep, where: Tensor, problem: Problem
) -> Solution:
    """The solution at some depths, with its interpolant."""
    ends = trajectory.ends
    path = Interpolant(ends, every, trajectory.saved)
    if trajectory.status is not Status.SUCCESS:  # leave out depths that were not reached
        direction = 1.0 if problem.span[1] > problem.span[0] else -1.0
        reached = (ends[-1] - where) * direction >= 0
        where = where[reached & (len(ends) > 1)] if where.dim() == 1 else where[:, :0]
    s = where.detach().to(trajectory.final[0].device, torch.float64)
    return problem.solution(trajectory, s, path(where), path if len(ends) > 1 else None)


class Event:
    """The depth at which g(s, z) first changes its sign, one or one per sample."""

    def __init__(self, g: Callable[[Tensor, Any], Tensor], problem: Problem, solver: Solver):
        if not callable(g):
            raise ArgumentError(f"event is a function g(s, z), not {g!r}")
        if not isinstance(solver, RungeKutta):
            raise ArgumentError(
                f"an event needs a Runge-Kutta method such as Dopri5(), not {solver!r}"
            )
        self._g, self._problem, self._depth = g, problem, problem.span[0]
        first = problem.z[0]
        value = self._value(self._depth, problem.z)
        if value.dim() > 0 and value.shape != first.shape[:1]:
            raise ShapeError(
                f"an event returns one number, or one per sample, shape {list(first.shape[:1])}, "
                f"not {list(value.shape)}"
            )
        self._sign = value.sign()
        self._low = torch.full_like(value, torch.nan, dtype=torch.float64)
        self._high, self._before = self._low.clone(), self._low.clone()

    def _value(self, s: float | Tensor, z: State) -> Tensor:
        s = torch.as_tensor(s, dtype=real(z[0].dtype), device=z[0].device)
        value = self._g(s, self._problem.state(z))
        if not isinstance(value, Tensor):
            raise ShapeError(f"an event returns a tensor, not {type(value).__name__}")
        return value.double()

    def stop(self, s: float, z: State) -> bool:
        """Evaluate g at the next saved state; whether all samples have had their event."""
        with torch.no_grad():
            now = self._value(s, z).sign()
        new = (now * self._sign <= 0) & (self._sign != 0) & self._high.isnan()
        self._low = self._low.masked_fill(new, self._depth)
        self._high = self._high.masked_fill(new, s)
        self._before = torch.where(new, self._sign, self._before)
        # A start at g = 0 is not an event: the first sign is that of the first state with g != 0.
        self._sign = torch.where(now == 0, self._sign, now)
        self._depth = s
        return not bool(self._high.isnan().any())

    def solution(self, trajectory: Trajectory, every: EveryStep) -> Solution:
        """The solution up to the event, or to the end of the span if there is none."""
        problem = self._problem
        if len(trajectory.ends) == 1:  # the first step failed
            return dense_solution(trajectory, every, torch.empty(0), problem)
        path = Interpolant(trajectory.ends, every, trajectory.saved)
        at = self._located(path)
        none = at.isnan()  # take the final state, in which an end of the span may have a gradient
        where = torch.where(none, path.span[1], at).unsqueeze(-1)
        z = path(where)
        final = tuple(
            torch.where(none.reshape(none.shape + (1,) * (last.dim() - none.dim())), last, leaf)
            for last, leaf in zip(trajectory.final, (x.squeeze(none.dim()) for x in z), strict=True)
        )
        ended = replace(trajectory, final=final)
        return problem.solution(ended, where.detach(), z, path, at)

    def _located(self, path: Interpolant) -> Tensor:
        """The depth of each event, NaN without one, with its gradient.

        By the implicit function theorem ds = -dg / g', with g' the derivative along the solution.
        """
        found = ~self._high.isnan()
        low = torch.where(found, self._low, path.span[1])
        high = torch.where(found, self._high, path.span[1])
        with torch.no_grad():
            for _ in range(HALVINGS):
                middle = (low + high) / 2
                earlier = self._along(path, middle).sign() == self._before
                low, high = torch.where(earlier, middle, low), torch.where(earlier, high, middle)
        value = self._along(path, high)
        if value.requires_grad:
            s = high.clone().requires_grad_()
            (rate,) = torch.autograd.grad(self._along(path, s).sum(), s)
            high = high - (value - value.detach()) / torch.where(found, rate, 1.0)
        return torch.where(found, high, torch.nan)

    def _along(self, path: Interpolant, s: Tensor) -> Tensor:
        if s.dim() == 0:
            return self._value(s, path(s))
        return self._value(s, tuple(leaf.squeeze(1) for leaf in path(s.unsqueeze(1))))
