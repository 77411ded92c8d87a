from continua._values import value

from ._runge_kutta import RungeKutta
from ._tableau import Tableau


@value
class Euler(RungeKutta):
    """The forward Euler method, order 1. With one bucket per step it is a ResNet."""

    tableau = Tableau(c=[0], a=[[]], dense=[[1]], order=1)
