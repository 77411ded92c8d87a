"""Embedded pairs: methods that estimate their own error."""

from __future__ import annotations

import math
from dataclasses import field, fields, replace
from typing import Any, Literal, Self

from continua._errors import ArgumentError
from continua._values import value

from ._adaptive import Adaptive
from ._dynamics import Depths, Dynamics, Span, State
from ._runge_kutta import RungeKutta
from ._solver import Trajectory, checked_steps
from ._tableau import Tableau


@value
class Pair(RungeKutta):
    r"""A method that estimates its own error and chooses its steps by it.

    A step is accepted when the root mean square of its error, each component relative to
    atol + rtol |z|, is at most one. The next step follows the proportional-integral rule

    .. math:: h' = h \cdot \min\big(\text{grow},\, \max(\text{shrink},\,
              \text{safety} \cdot e^{-0.85/q}\, e_{-1}^{0.2/q})\big)

    with the errors e of this and of the last accepted step. At every breakpoint of the basis the
    solver stops and starts again, so that no step straddles a jump of the weights. Where the
    steps themselves are differentiated (`Backprop`, `Checkpoint`), they also stay short enough to
    resolve the basis, or the gradient of a wave that has no weight yet would be wrong.

    Args:
        rtol: relative tolerance.
        atol: absolute tolerance.
        steps: a fixed grid of so many steps instead; the tolerances are then not used.
        max_steps: how many steps may be tried before the solve gives up.
        first_step: the length of the first step; None estimates it.
        min_step: steps below give up; 0 stands for what the precision can resolve.
        max_step: the longest step.
        safety: how far below the longest acceptable step to aim.
        shrink: the least factor from one step to the next.
        grow: the greatest factor from one step to the next.
        norm: `"batch"` controls the error over the whole batch, `"sample"` that of the worst
            sample, whose results then do not depend on the others' being easy.
    """

    rtol: float = 1e-4
    atol: float = 1e-4
    steps: int | None = field(default=None, kw_only=True)
    max_steps: int = field(default=10_000, kw_only=True)
    first_step: float | None = field(default=None, kw_only=True)
    min_step: float = field(default=0.0, kw_only=True)
    max_step: float = field(default=math.inf, kw_only=True)
    safety: float = field(default=0.9, kw_only=True)
    shrink: float = field(default=0.2, kw_only=True)
    grow: float = field(default=10.0, kw_only=True)
    norm: Literal["batch", "sample"] = field(default="batch", kw_only=True)

    def __post_init__(self) -> None:
        for name in ("rtol", "atol", "max_step"):
            number = getattr(self, name)
            if isinstance(number, bool) or not isinstance(number, int | float) or not number > 0:
                raise ArgumentError(f"{name} is a positive number, not {number!r}")
        if not 0 < self.safety < 1 or not 0 < self.shrink < 1 or not self.grow > 1:
            raise ArgumentError(
                f"safety={self.safety!r} and shrink={self.shrink!r} lie between 0 and 1, "
                f"grow={self.grow!r} above"
            )
        if self.first_step is not None and not self.first_step > 0:
            raise ArgumentError(f"first_step is positive, not {self.first_step!r}")
        if not self.min_step >= 0:
            raise ArgumentError(f"min_step is at least 0, not {self.min_step!r}")
        if self.norm not in ("batch", "sample"):
            raise ArgumentError(f"norm is 'batch' or 'sample', not {self.norm!r}")
        checked_steps(self.max_steps, "max_steps")
        object.__setattr__(self, "rtol", float(self.rtol))
        object.__setattr__(self, "atol", float(self.atol))
        if self.steps is not None:
            checked_steps(self.steps)
            # A fixed grid has no step control, so that it does not tell two of them apart.
            for option in fields(self):
                if option.name != "steps":
                    object.__setattr__(self, option.name, option.default)

    def arguments(self) -> dict[str, Any]:
        return super().arguments() if self.steps is None else {"steps": self.steps}

    def starting(self, first_step: float) -> Self:
        chosen = self.steps is not None or self.first_step is not None
        return self if chosen else replace(self, first_step=first_step)

    def integrate(
        self, dynamics: Dynamics, z: State, span: Span, save_at: Depths = (), observe: Any = None
    ) -> Trajectory:
        if self.steps is not None:
            return super().integrate(dynamics, z, span, save_at, observe)
        return Adaptive(self, dynamics, z, span, save_at, observe).run()


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


@value
class Dopri5(Pair):
    """The pair of Dormand and Prince, orders 5 and 4: the usual choice."""

    tableau = Tableau(
        c=[0, "1/5", "3/10", "4/5", "8/9", 1, 1],
        a=[
            [],
            ["1/5"],
            ["3/40", "9/40"],
            ["44/45", "-56/15", "32/9"],
            ["19372/6561", "-25360/2187", "64448/6561", "-212/729"],
            ["9017/3168", "-355/33", "46732/5247", "49/176", "-5103/18656"],
            ["35/384", 0, "500/1113", "125/192", "-2187/6784", "11/84"],
        ],
        # Shampine's quartic
        dense=[
            [1, "-8048581381/2820520608", "8663915743/2820520608", "-12715105075/11282082432"],
            [0],
            [0, "131558114200/32700410799", "-68118460800/10900136933", "87487479700/32700410799"],
            [0, "-1754552775/470086768", "14199869525/1410260304", "-10690763975/1880347072"],
            [0, "127303824393/49829197408", "-318862633887/49829197408",
             "701980252875/199316789632"],
            [0, "-282668133/205662961", "2019193451/616988883", "-1453857185/822651844"],
            [0, "40617522/29380423", "-110615467/29380423", "69997945/29380423"],
        ],
        order=5,
        errors=[["71/57600", 0, "-71/16695", "71/1920", "-17253/339200", "22/525", "-1/40"]],
        error_order=4,
    )  # fmt: skip


@value
class Tsit5(Pair):
    """The pair of Tsitouras, orders 5 and 4: somewhat more accurate per step than `Dopri5`."""

    tableau = Tableau(
        c=[0, "0.161", "0.327", "0.9", "0.9800255409045097", 1, 1],
        a=[
            [],
            ["0.161"],
            ["-0.008480655492356989", "0.335480655492357"],
            ["2.8971530571054935", "-6.359448489975075", "4.3622954328695815"],
            ["5.325864828439257", "-11.748883564062828", "7.4955393428898365",
             "-0.09249506636175525"],
            ["5.86145544294642", "-12.92096931784711", "8.159367898576159",
             "-0.071584973281401", "-0.028269050394068383"],
            ["0.09646076681806523", "0.01", "0.4798896504144996", "1.379008574103742",
             "-3.290069515436081", "2.324710524099774"],
        ],
        # the polynomials of the paper, multiplied out
        dense=[
            [0.9999999999999998, -2.763706197274826, 2.9132554618219126, -1.0530884977290216],
            [0, 0.13169999999999998, -0.2234, 0.1017],
            [0, 3.930296236894751, -5.941033872131505, 2.490627285651253],
            [0, -12.411077166933676, 30.338188630282318, -16.548102889244902],
            [0, 37.50931341651104, -88.1789048947664, 47.37952196281928],
            [0, -27.896526289197286, 65.09189467479368, -34.87065786149661],
            [0, 1.5, -4.0, 2.5],
        ],
        order=5,
        errors=[["-0.00178001105222577714", "-0.0008164344596567469", "0.007880878010261995",
                 "-0.1447110071732629", "0.5823571654525552", "-0.45808210592918697", "1/66"]],
        error_order=4,
    )  # fmt: skip
