from continua._values import value

from ._runge_kutta import RungeKutta
from ._tableau import Tableau


@value
class Midpoint(RungeKutta):
    """The explicit midpoint method, order 2."""

    tableau = Tableau(c=[0, "1/2"], a=[[], ["1/2"]], dense=[[1, -1], [0, 1]], order=2)
