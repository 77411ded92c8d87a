from __future__ import annotations

from collections.abc import Sequence

from continua._values import value
from continua.solve import Dynamics, Solver, Span, State, Trajectory

from ._gradient import Gradient, follow


@value
class Backprop(Gradient):
    """Differentiate the solver's own operations: exact for the discrete solution.

    Autograd keeps what every evaluation of the field needs, so memory grows with the number of
    evaluations. Second derivatives work.
    """

    discrete = True

    def solve(
        self, solver: Solver, dynamics: Dynamics, z: State, span: Span, save_at: Sequence[float]
    ) -> Trajectory:
        return follow(solver, dynamics, z, span, save_at)
