from continua._values import value

from ._runge_kutta import RungeKutta
from ._tableau import Tableau


@value
class RK4(RungeKutta):
    """The classical Runge-Kutta method, order 4."""

    tableau = Tableau(
        c=[0, "1/2", "1/2", 1],
        a=[[], ["1/2"], [0, "1/2"], [0, 0, 1]],
        dense=[[1, "-3/2", "2/3"], [0, 1, "-2/3"], [0, 1, "-2/3"], [0, "-1/2", "2/3"]],
        order=4,
    )
