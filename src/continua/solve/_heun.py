from continua._values import value

from ._runge_kutta import RungeKutta
from ._tableau import Tableau


@value
class Heun(RungeKutta):
    """Heun's method, the explicit trapezoidal rule, order 2."""

    tableau = Tableau(c=[0, 1], a=[[], [1]], dense=[[1, "-1/2"], [0, "1/2"]], order=2)
