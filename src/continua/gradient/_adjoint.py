from __future__ import annotations

import bisect
import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from continua._errors import ArgumentError, SolveError
from continua._values import value
from continua.solve import (
    BackwardField,
    Dynamics,
    Evaluate,
    EveryStep,
    Pair,
    Reading,
    RungeKutta,
    Solver,
    Stage,
    State,
    Stats,
    Step,
    Trajectory,
    linear,
)

from ._gradient import Gradient, Job, as_leaves, split, vector_jacobian

#: the relative error of the quadrature over a step of a fixed grid
GRID = 1e-3


class AdjointJob(Job):
    gradient: Adjoint
    solver: RungeKutta
    ends: list[tuple[float, float]]  # of the forward steps

    noise = (
        "the adjoint equation needs a field without noise such as dropout: use Checkpoint() "
        "or Backprop(), or evaluation mode"
    )

    @property
    def backsolves(self) -> bool:
        """Whether the backward solve includes the state."""
        return self.gradient.state == "backsolve"

    def at_stages(self, solver: RungeKutta) -> bool:
        """Whether the stages of the method resolve the field's dependence on depth.

        On a fixed grid a method of order 2n counts as n Gauss points. The error estimate of
        adaptive steps sees functions of depth only as far as they move the state.
        """
        if solver.steps is None:
            return not self.dynamics.varies
        h = abs(self.span[1] - self.span[0]) / solver.steps
        return self.dynamics.points(h, GRID) <= solver.tableau.order // 2

    def forward(self, z: State) -> Trajectory:
        self.ends, self.further = [], Stats()  # evaluations for the interpolant alone
        self.powers = max(map(len, self.solver.tableau.dense))
        observe = None if self.backsolves else self._keep
        trajectory = self.solver.integrate(self.dynamics, z, self.span, self.save_at, observe)
        trajectory.stats.evaluations += self.further.evaluations
        if self.backsolves:
            self.stored = list(trajectory.final)
        return trajectory

    def _keep(self, step: Step) -> None:
        """Store the step as a polynomial: its start and the coefficients of theta, theta^2..."""
        step.complete(self.dynamics, self.further)
        self.ends.append((float(step.start), float(step.end)))
        self.stored += step.z
        for column in itertools.zip_longest(*step.tableau.floats.dense, fillvalue=0.0):
            self.stored += linear([step.h * weight for weight in column], step.ks)

    def place(self, s: float) -> tuple[int, float]:
        """The forward step at a depth, and the fraction of it."""
        sign = 1 if self.span[1] > self.span[0] else -1
        n = bisect.bisect_right(self.ends, sign * s, key=lambda ends: sign * ends[0]) - 1
        n = max(n, 0)
        start, end = self.ends[n]
        return n, (s - start) / (end - start)

    def at(self, s: float) -> State:
        """The forward solution at a depth."""
        n, x = self.place(s)
        per_step = self.leaves * (self.powers + 1)
        coefficients = split(self.stored[n * per_step : (n + 1) * per_step], self.leaves)
        return linear([x**power for power in range(self.powers + 1)], coefficients)

    def backward(
        self, field: BackwardField, final: State, saved: list[State], stats: Stats
    ) -> State:
        solver = self.gradient.solver or self.solver
        # The relative error of the quadrature: less than that of the solve itself.
        self.error = 0.01 * solver.rtol if isinstance(solver, Pair) and solver.adaptive else 1e-7
        dynamics = self.equation(field, solver)
        z: State = tuple(self.stored) if self.backsolves else ()
        a, s = final, self.span[1]
        if isinstance(self.save_at, EveryStep):
            s = self.trajectory.ends[-1]  # an event may have stopped the solve
        # The steps of the forward solve tell how long the first one may be.
        sizes = self.trajectory.stats.step_sizes if self.gradient.solver is None else []

        def integral(step: Step) -> None:
            self.integral(step, dynamics, field, stats)

        for depth, gradient in self._stops(saved, solver):
            if depth != s:
                part = self._solver_between(solver, s, depth, sizes)
                trajectory = part.integrate(dynamics, (*z, *a), (s, depth), observe=integral)
                merge(stats, trajectory.stats)
                if trajectory.failure is not None:
                    raise SolveError(
                        f"the backward solve stopped at depth {trajectory.failure.depth:g}: "
                        f"{trajectory.status.value}; try Checkpoint(), or looser tolerances in "
                        "Adjoint(solver=...)"
                    )
                z, a = trajectory.final[: len(z)], trajectory.final[len(z) :]
                s, sizes = depth, stats.step_sizes
            if gradient is not None:
                a = linear([1, 1], [a, gradient])
        return a

    def _stops(self, saved: list[State], solver: RungeKutta) -> list[tuple[float, State | None]]:
        """Where the backward solve stops, in its order, and the gradients of the states there."""
        where, every = self.save_at, isinstance(self.save_at, EveryStep)
        if isinstance(where, EveryStep):
            where = where.depths(self.trajectory.ends)
        stops: list[tuple[float, State | None]] = [
            (depth, g)
            for depth, g in zip(where, saved, strict=True)
            if not every or any(x.any() for x in g)  # most states of a dense solve have none
        ]
        if solver.steps is not None:  # the equal steps of a fixed grid do not stop by themselves
            low, high = sorted(self.span)
            stops += [(b, None) for b in self.dynamics.breakpoints if low < b < high]
        stops.sort(key=lambda stop: stop[0], reverse=self.span[1] > self.span[0])
        return [*stops, (self.span[0], None)]

    def _solver_between(
        self, solver: RungeKutta, start: float, end: float, sizes: list[float]
    ) -> RungeKutta:
        """The solver for a part of the span, given the sizes of earlier steps."""
        if solver.steps is not None:
            share = abs((start - end) / (self.span[1] - self.span[0]))
            return solver.with_steps(max(1, math.ceil(solver.steps * share - 1e-9)))
        if sizes and isinstance(solver, Pair) and solver.first_step is None:
            return replace(solver, first_step=max(sizes[-2:]))
        return solver

    def equation(self, field: BackwardField, solver: RungeKutta) -> Backward:
        """The adjoint equation of a backward pass."""
        return Backward(self, field, self.at_stages(solver))

    def integral(self, step: Step, dynamics: Backward, field: BackwardField, stats: Stats) -> None:
        """Add the integral of a^T df/dtheta over one backward step."""
        if dynamics.at_stages:
            _accumulate(step)
            return
        nodes = self.nodes(step, dynamics, stats)
        reading = field.read([Stage(s, "right") for s, _, _ in nodes])
        outputs, along = [], []
        with torch.enable_grad():
            for f, (s, both, weight) in zip(reading.evaluate, nodes, strict=True):
                z = both[: -self.leaves] or self.at(s)
                # Group norm's derivative by its weights alone crashes torch in channels_last.
                outputs.append(f(tuple(v.detach().contiguous() for v in z)))
                along.append(tuple(v.detach() * weight for v in both[-self.leaves :]))
        reading.accumulate(vector_jacobian(outputs, along, (), reading.leaves)[1])

    def nodes(
        self, step: Step, dynamics: Dynamics, stats: Stats
    ) -> list[tuple[float, State, float]]:
        """A Gauss quadrature over one backward step: depths, backward states, and weights."""
        step.complete(dynamics, stats)
        x, w = self._gauss(step)
        stats.evaluations += len(x)
        start = float(step.start)
        return [(start + step.h * v, step.at(v), -step.h * b) for v, b in zip(x, w, strict=True)]

    def _gauss(self, step: Step) -> tuple[list[float], list[float]]:
        """Points and weights of a quadrature over a step, as fractions of it.

        The step size is chosen for the adjoint alone, and functions of depth may vary faster. For
        the basis the number of points is known. If a field reads the depth itself, the quadrature
        is also split at the ends of the forward steps.
        """
        start, cuts = float(step.start), [0.0, 1.0]
        if self.dynamics.reads_depth:
            inner = ((end - start) / step.h for _, end in self.ends)
            cuts = sorted({*cuts, *(x for x in inner if 1e-9 < x < 1 - 1e-9)})
        points, weights = [], []
        for low, high in itertools.pairwise(cuts):
            width = high - low
            # Over a step the state is a polynomial of the method's order, up to its tolerance.
            count = step.tableau.order // 2 + self.dynamics.points(step.h * width, self.error)
            x, w = _leggauss(count)
            points += [low + width * 0.5 * (1 + float(v)) for v in x]
            weights += [width * 0.5 * float(v) for v in w]
        return points, weights


@functools.cache
def _leggauss(count: int) -> Any:
    return np.polynomial.legendre.leggauss(count)


class Backward(Dynamics):
    """The adjoint equation, and before it that of the state if it is solved backward too."""

    def __init__(self, job: AdjointJob, field: BackwardField, at_stages: bool):
        self.job, self.read, self.at_stages = job, field.read, at_stages
        self.breakpoints, self.jumps = job.dynamics.breakpoints, job.dynamics.jumps

    def at(self, stages: Sequence[Stage]) -> Sequence[Evaluate]:
        reading = self.read(stages, self.at_stages)
        return [self._evaluate(reading, i, float(stage.depth)) for i, stage in enumerate(stages)]

    def _evaluate(self, reading: Reading, i: int, s: float) -> Evaluate:
        f, used = reading.evaluate[i], reading.used[i]
        leaves = [reading.leaves[place] for place in used]

        def evaluate(both: State) -> State:
            z, a = both[: -self.job.leaves], both[-self.job.leaves :]
            with torch.enable_grad():
                start = as_leaves(z or self.job.at(s))
                out = f(start)
            found, weights = vector_jacobian([out], [a], start, leaves)
            moved = (x.detach() for x in out) if z else ()
            slope = _Slope((*moved, *(-g for g in found)))
            if self.at_stages:
                slope.reading, slope.weights = reading, list(zip(used, weights, strict=True))
            return slope

        return evaluate


class _Slope(tuple[Tensor, ...]):
    """A slope of the adjoint equation, with the gradients of the weights at its stage."""

    reading: Reading | None = None
    weights: Sequence[tuple[int, Tensor | None]] = ()


def _accumulate(step: Step) -> None:
    """Add the integral of a^T df/dtheta over one backward step, by the weights of its method."""
    sums: dict[int, tuple[Reading, list[Tensor | None]]] = {}
    for k, b in zip(step.ks, step.tableau.floats.b, strict=False):
        assert isinstance(k, _Slope)
        if b:
            assert k.reading is not None
            empty: list[Tensor | None] = [None] * len(k.reading.leaves)
            _, total = sums.setdefault(id(k.reading), (k.reading, empty))
            for place, gradient in k.weights:
                known = total[place]
                if gradient is not None and known is not None:
                    known.add_(gradient, alpha=-step.h * b)
                elif gradient is not None:
                    total[place] = gradient * (-step.h * b)
        if b or k is not step.ks[-1]:  # the last may be the first of the next step
            k.reading, k.weights = None, ()
    for reading, total in sums.values():
        reading.accumulate(total)


def merge(stats: Stats, more: Stats) -> None:
    """Add the cost of a part of a solve."""
    stats.evaluations += more.evaluations
    stats.steps += more.steps
    stats.rejected += more.rejected
    stats.step_sizes += more.step_sizes


@value
class Adjoint(Gradient):
    r"""Solve the adjoint equation backward in depth: the gradient of the continuous solution.

    .. math:: \frac{da}{ds} = -a^\top \frac{\partial f}{\partial z}, \qquad
              \frac{d\ell}{d\theta} = \int a^\top \frac{\partial f}{\partial \theta}\, ds

    A running cost is one more component of the state, so its terms are in both equations. The
    integral is a sum over the stages of the backward steps, if they resolve the basis, and a Gauss
    quadrature on each step otherwise. The backward state is (z, a) or a alone, without the
    weights. Their gradients at the stages of one step are in memory at the same time and are then
    contracted with the basis, so the cost does not grow with the basis. The gradient agrees with
    `Backprop` up to the tolerances of both solves. Inside `torch.func` and `torch.compile` it is
    that of `Backprop`.

    Args:
        state: `"interpolate"` reads z from the stored forward solution. `"backsolve"` solves for z
            backward along with a; its memory does not grow with the number of steps, but it is
            unstable where the flow contracts strongly.
        solver: of the backward solve, with its own tolerances; None takes the forward one.

    Proposition 1 of Dissecting Neural ODEs (Massaroli et al. 2020), corollaries 1 and 2 for
    spectral and stacked weights.
    """

    job = AdjointJob

    state: str = "interpolate"
    solver: RungeKutta | None = None

    def __post_init__(self) -> None:
        if self.state not in ("interpolate", "backsolve"):
            raise ArgumentError(f"state is 'interpolate' or 'backsolve', not {self.state!r}")

    def check(self, solver: Solver, dynamics: Dynamics) -> None:
        for used in (solver, self.solver or solver):
            if not isinstance(used, RungeKutta):
                raise ArgumentError(
                    f"Adjoint needs a Runge-Kutta method, not {used!r}; use Reversible() for that"
                )
        if self.state == "backsolve" and dynamics.stateful:
            raise ArgumentError(
                "Adjoint(state='backsolve') cannot be right with batch norm in training mode: "
                "use Adjoint(), Checkpoint() or Backprop(), or put the norm in evaluation mode"
            )
