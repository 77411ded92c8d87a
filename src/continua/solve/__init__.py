"""Solvers: how a trajectory is computed."""

from collections.abc import Mapping
from typing import Any

from continua._errors import ArgumentError

from ._euler import Euler
from ._heun import Heun
from ._midpoint import Midpoint
from ._rk4 import RK4
from ._rk38 import RK38
from ._runge_kutta import RungeKutta, Solver, Span, Stage
from ._solution import Solution, Stats
from ._tableau import Tableau

__all__ = [
    "RK4",
    "RK38",
    "SOLVERS",
    "Euler",
    "Heun",
    "Midpoint",
    "RungeKutta",
    "Solution",
    "Solver",
    "Span",
    "Stage",
    "Stats",
    "Tableau",
    "solver_from_config",
]

#: every solver, by name
SOLVERS: dict[str, type[RungeKutta]] = {
    solver.__name__: solver for solver in (Euler, Midpoint, Heun, RK4, RK38)
}


def solver_from_config(config: Mapping[str, Any]) -> RungeKutta:
    """The solver that `Solver.config` described."""
    arguments = dict(config)
    name = arguments.pop("type", None)
    if not isinstance(name, str) or name not in SOLVERS:
        raise ArgumentError(f"unknown solver {name!r}; known are {', '.join(SOLVERS)}")
    try:
        return SOLVERS[name](**arguments)
    except TypeError as error:
        raise ArgumentError(f"{name} cannot be made from {arguments}: {error}") from None
