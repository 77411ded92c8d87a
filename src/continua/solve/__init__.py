"""Solvers: how a trajectory is computed."""

from collections.abc import Mapping
from typing import Any

from continua._errors import ArgumentError

from ._bosh3 import Bosh3
from ._dopri5 import Dopri5
from ._dopri8 import Dopri8
from ._dynamics import (
    PART,
    Dynamics,
    Evaluate,
    Function,
    Map,
    Reading,
    Side,
    Span,
    Stage,
    State,
    combine,
    in_parts,
)
from ._euler import Euler
from ._heun import Heun
from ._midpoint import Midpoint
from ._pair import Pair
from ._reversible import AsynchronousLeapfrog, Probe, ReversibleHeun, ReversibleSolver, Undone
from ._rk4 import RK4
from ._rk38 import RK38
from ._runge_kutta import RungeKutta, Solver
from ._solution import Failure, Solution, Stats, Status, Trajectory
from ._step import Observer, Step, further_stages, sides, stages_between
from ._tableau import Tableau
from ._tsit5 import Tsit5

__all__ = [
    "PART",
    "AsynchronousLeapfrog",
    "Bosh3",
    "Dopri5",
    "Dopri8",
    "Dynamics",
    "Euler",
    "Evaluate",
    "Failure",
    "Function",
    "Heun",
    "Map",
    "Midpoint",
    "Observer",
    "Pair",
    "Probe",
    "RK38",
    "RK4",
    "Reading",
    "ReversibleHeun",
    "ReversibleSolver",
    "RungeKutta",
    "SOLVERS",
    "Side",
    "Solution",
    "Solver",
    "Span",
    "Stage",
    "State",
    "Stats",
    "Status",
    "Step",
    "Tableau",
    "Trajectory",
    "Tsit5",
    "Undone",
    "combine",
    "further_stages",
    "in_parts",
    "sides",
    "solver_from_config",
    "stages_between",
]

#: every solver, by name
SOLVERS: dict[str, type[Solver]] = {
    solver.__name__: solver
    for solver in (
        Euler,
        Midpoint,
        Heun,
        RK4,
        RK38,
        Bosh3,
        Dopri5,
        Tsit5,
        Dopri8,
        ReversibleHeun,
        AsynchronousLeapfrog,
    )
}


def solver_from_config(config: Mapping[str, Any]) -> Solver:
    """The solver that `Solver.config` described."""
    arguments = dict(config)
    name = arguments.pop("type", None)
    if not isinstance(name, str) or name not in SOLVERS:
        raise ArgumentError(f"unknown solver {name!r}; known are {', '.join(SOLVERS)}")
    try:
        return SOLVERS[name](**arguments)
    except TypeError as error:
        raise ArgumentError(f"{name} cannot be made from {arguments}: {error}") from None
