"""Solvers: how a trajectory is computed."""

from continua._values import known

from ._adaptive import error_norm, size_norm
from ._dynamics import (
    PART,
    BackwardField,
    Dynamics,
    Evaluate,
    Reading,
    Side,
    Source,
    Span,
    Stage,
    State,
    Steps,
    Take,
    Traced,
    in_parts,
    linear,
)
from ._interpolant import EveryStep, Interpolant, check_depths
from ._pair import Bosh3, Dopri5, Dopri8, Pair, Tsit5
from ._reversible import AsynchronousLeapfrog, ReversibleHeun, ReversibleSolver
from ._runge_kutta import RK4, RK38, Euler, Heun, Midpoint, RungeKutta
from ._solver import Failure, Saves, Solution, Solver, Stats, Status, Trajectory
from ._step import Scaled, Step, sides, stages_between, step
from ._tableau import Tableau

__all__ = [
    "Solver", "RungeKutta", "Pair", "ReversibleSolver", "Tableau", "SOLVERS",
    "Euler", "Midpoint", "Heun", "RK4", "RK38",
    "Bosh3", "Dopri5", "Tsit5", "Dopri8",
    "ReversibleHeun", "AsynchronousLeapfrog",
    # what they integrate
    "Dynamics", "Reading", "BackwardField", "Evaluate", "Stage", "Side", "Span", "State",
    "PART", "in_parts",
    # for compiled steps
    "Source", "Steps", "Take", "Traced", "error_norm", "size_norm",
    # what they give back
    "Solution", "Trajectory", "Stats", "Status", "Failure", "EveryStep", "Interpolant", "Saves",
    "check_depths",
    # one step
    "Step", "Scaled", "linear", "sides", "stages_between", "step",
]  # fmt: skip

#: every solver, by name
SOLVERS = known(Solver)
