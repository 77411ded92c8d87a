"""Initial value problems whose solution is known in closed form."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from continua.solve import Dynamics, Evaluate, Solver, Span, Stage, Trajectory


class Function(Dynamics):
    """A plain function f(s, z) of a single tensor, without parameters; it jumps at breakpoints."""

    def __init__(self, f: Callable[[float, Tensor], Tensor], breakpoints: Sequence[float] = ()):
        self._f = f
        self.breakpoints = self.jumps = tuple(breakpoints)

    def at(self, stages: Sequence[Stage]) -> Sequence[Evaluate]:
        def evaluate(s: float) -> Evaluate:
            return lambda z: (self._f(s, z[0]),)

        return [evaluate(float(stage.depth)) for stage in stages]


@dataclass(frozen=True)
class Problem:
    """dz/ds = f(s, z) from z(span[0]) to z(span[1]).

    Attributes:
        f: the field.
        exact: the solution, at any depth.
        span: from where to where.
    """

    f: Callable[[float, Tensor], Tensor]
    exact: Callable[[float], Tensor]
    span: Span = (0.0, 1.0)

    @property
    def start(self) -> Tensor:
        return self.exact(self.span[0])

    @property
    def end(self) -> Tensor:
        return self.exact(self.span[1])

    def reversed(self) -> Problem:
        """The same trajectory from its end to its start."""
        return Problem(self.f, self.exact, self.span[::-1])

    def dynamics(self) -> Function:
        """The field as a solver follows it."""
        return Function(self.f)

    def solve(self, solver: Solver, save_at: Sequence[float] = ()) -> Trajectory:
        """From the start of the span to its end."""
        return solver.integrate(self.dynamics(), (self.start,), self.span, save_at)


def advance(
    solver: Solver, f: Callable[[float, Tensor], Tensor], z: Tensor, span: Span = (0.0, 1.0)
) -> Tensor:
    """The state at the end of the span."""
    return solver.integrate(Function(f), (z,), span).final[0]


def saved(
    solver: Solver,
    f: Callable[[float, Tensor], Tensor],
    z: Tensor,
    span: Span,
    save_at: Sequence[float],
) -> Tensor:
    """The states at the given depths, `[T, ...]`."""
    states = [state[0] for state in solver.integrate(Function(f), (z,), span, save_at).saved]
    return torch.stack(states) if states else z.new_empty(0, *z.shape)


def _tensor(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def _turned(angle: float) -> Tensor:
    return _tensor(math.cos(angle) - 0.5 * math.sin(angle), math.sin(angle) + 0.5 * math.cos(angle))


PROBLEMS = {
    # z' = cos(s) z: linear, and not autonomous. On a longer span errors of both signs cancel.
    "growth": Problem(
        f=lambda s, z: math.cos(s) * z,
        exact=lambda s: _tensor(1.5, -0.7) * math.exp(math.sin(s)),
        span=(0.0, 0.5),
    ),
    # A turn of the plane at the rate 1 + 2s.
    "rotation": Problem(
        f=lambda s, z: (1 + 2 * s) * torch.stack([-z[1], z[0]]),
        exact=lambda s: _turned(s + s**2),
    ),
    # z' = z (1 - z): not linear.
    "logistic": Problem(
        f=lambda s, z: z * (1 - z),
        exact=lambda s: 1 / (1 + _tensor(3.0, 9.0) * math.exp(-s)),
        span=(0.0, 2.0),
    ),
}


def rates(errors: Sequence[float]) -> list[float]:
    """The observed order each time the steps are doubled, as long as it is not all rounding."""
    return [math.log2(a / b) for a, b in pairwise(errors) if b > 1e-13]
