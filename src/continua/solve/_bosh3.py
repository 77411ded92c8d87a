from continua._values import value

from ._pair import Pair
from ._tableau import Tableau


@value
class Bosh3(Pair):
    """The pair of Bogacki and Shampine, orders 3 and 2: for loose tolerances."""

    tableau = Tableau(
        c=[0, "1/2", "3/4", 1],
        a=[[], ["1/2"], [0, "3/4"], ["2/9", "1/3", "4/9"]],
        dense=[[1, "-4/3", "5/9"], [0, 1, "-2/3"], [0, "4/3", "-8/9"], [0, -1, 1]],
        order=3,
        errors=[["5/72", "-1/12", "-1/9", "1/8"]],
        error_order=2,
    )
