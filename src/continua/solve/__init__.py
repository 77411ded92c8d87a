"""Solvers: how a trajectory is computed."""

from continua._values import known

from ._bosh3 import Bosh3
from ._dopri5 import Dopri5
from ._dopri8 import Dopri8
from ._dynamics import (
    PART,
    Dynamics,
    Evaluate,
    Function,
    Reading,
    Rerun,
    Side,
    Span,
    Stage,
    State,
    combine,
    in_parts,
)
from ._euler import Euler
from ._heun import Heun
from ._leapfrog import AsynchronousLeapfrog
from ._midpoint import Midpoint
from ._pair import Pair
from ._reversible import Linearized, ReverseState, ReversibleSolver
from ._reversible_heun import ReversibleHeun
from ._rk4 import RK4
from ._rk38 import RK38
from ._runge_kutta import RungeKutta
from ._solver import Failure, Solution, Solver, Stats, Status, Trajectory
from ._step import Observer, Scaled, Step, sides, stages_between, step
from ._tableau import Tableau
from ._tsit5 import Tsit5

__all__ = [
    "Solver", "RungeKutta", "Pair", "ReversibleSolver", "Tableau", "SOLVERS",
    "Euler", "Midpoint", "Heun", "RK4", "RK38",
    "Bosh3", "Dopri5", "Tsit5", "Dopri8",
    "ReversibleHeun", "AsynchronousLeapfrog",
    # what they integrate
    "Dynamics", "Function", "Reading", "Rerun", "Evaluate", "Stage", "Side", "Span", "State",
    "PART", "in_parts",
    # what they give back
    "Solution", "Trajectory", "Stats", "Status", "Failure",
    # one step
    "Step", "Scaled", "Observer", "Linearized", "ReverseState",
    "combine", "sides", "stages_between", "step",
]  # fmt: skip

#: every solver, by name
SOLVERS = known(Solver)
