"""The Runge-Kutta methods, as parameters of tests."""

import pytest
from hypothesis import strategies as st

from continua.solve import SOLVERS, RungeKutta
from problems import PROBLEMS

METHODS = {name: solver for name, solver in SOLVERS.items() if issubclass(solver, RungeKutta)}
every_solver = pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
# Order 8 drowns in rounding before its rate can be seen; order 5 needs fewer steps.
low_order = pytest.mark.parametrize(
    "method", [m for m in METHODS.values() if m.tableau.order <= 4], ids=lambda m: m.__name__
)
every_problem = pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)

# Methods that torchdiffeq has too; its rk4 is the 3/8 rule.
TORCHDIFFEQ = {"Euler": "euler", "Midpoint": "midpoint", "Heun": "heun2", "RK38": "rk4"}

STEPS = (8, 16, 32, 64)

depths = st.floats(-3, 3)
spans = st.tuples(depths, depths).filter(lambda span: abs(span[1] - span[0]) > 0.01)


def solved(problem, solver):
    return problem.solve(solver).final[0]


def end_errors(problem, method):
    return [(solved(problem, method(steps=n)) - problem.end).norm().item() for n in STEPS]
