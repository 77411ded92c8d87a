"""Embedded pairs: methods that estimate their own error."""

from __future__ import annotations

import math
from dataclasses import field, fields
from typing import Any, Literal

from continua._errors import ArgumentError
from continua._values import Value, value, whole_number

from ._adaptive import Adaptive
from ._dynamics import Dynamics, Span, State
from ._runge_kutta import RungeKutta
from ._solver import Saves, Trajectory
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
        Value.__post_init__(self)
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
        whole_number("max_steps", self.max_steps)
        object.__setattr__(self, "rtol", float(self.rtol))
        object.__setattr__(self, "atol", float(self.atol))
        if self.steps is not None:
            whole_number("steps", self.steps)
            # A fixed grid has no step control, so that it does not tell two of them apart.
            for option in fields(self):
                if option.name != "steps":
                    object.__setattr__(self, option.name, option.default)

    def arguments(self) -> dict[str, Any]:
        return super().arguments() if self.steps is None else {"steps": self.steps}

    def integrate(
        self, dynamics: Dynamics, z: State, span: Span, save_at: Saves = (), observe: Any = None
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


@value
class Dopri8(Pair):
    """The method of Dormand and Prince of order 8 with error estimates of orders 5 and 3.

    For tight tolerances in double precision. The coefficients are those of DOP853 (Hairer,
    Nørsett and Wanner), whose continuous extension of order 7 takes three evaluations more in
    the steps in which it is asked for.
    """

    tableau = Tableau(
        c=[0, 0.05260015195876773, 0.0789002279381516, 0.1183503419072274, 0.2816496580927726,
           0.3333333333333333, 0.25, 0.3076923076923077, 0.6512820512820513, 0.6,
           0.8571428571428571, 1.0, 1.0, 0.1, 0.2, 0.7777777777777778],
        a=[
            [],
            [0.05260015195876773],
            [0.0197250569845379, 0.0591751709536137],
            [0.02958758547680685, 0, 0.08876275643042054],
            [0.2413651341592667, 0, -0.8845494793282861, 0.924834003261792],
            [0.037037037037037035, 0, 0, 0.17082860872947386, 0.12546768756682242],
            [0.037109375, 0, 0, 0.17025221101954405, 0.06021653898045596, -0.017578125],
            [0.03709200011850479, 0, 0, 0.17038392571223998, 0.10726203044637328,
             -0.015319437748624402, 0.008273789163814023],
            [0.6241109587160757, 0, 0, -3.3608926294469414, -0.868219346841726, 27.59209969944671,
             20.154067550477894, -43.48988418106996],
            [0.47766253643826434, 0, 0, -2.4881146199716677, -0.590290826836843,
             21.230051448181193, 15.279233632882423, -33.28821096898486, -0.020331201708508627],
            [-0.9371424300859873, 0, 0, 5.186372428844064, 1.0914373489967295, -8.149787010746927,
             -18.52006565999696, 22.739487099350505, 2.4936055526796523, -3.0467644718982196],
            [2.273310147516538, 0, 0, -10.53449546673725, -2.0008720582248625, -17.9589318631188,
             27.94888452941996, -2.8589982771350235, -8.87285693353063, 12.360567175794303,
             0.6433927460157636],
            [0.054293734116568765, 0, 0, 0, 0, 4.450312892752409, 1.8915178993145003,
             -5.801203960010585, 0.3111643669578199, -0.1521609496625161, 0.20136540080403034,
             0.04471061572777259],
            [0.056167502283047954, 0, 0, 0, 0, 0, 0.25350021021662483, -0.2462390374708025,
             -0.12419142326381637, 0.15329179827876568, 0.00820105229563469, 0.007567897660545699,
             -0.008298],
            [0.03183464816350214, 0, 0, 0, 0, 0.028300909672366776, 0.053541988307438566,
             -0.05492374857139099, 0, 0, -0.00010834732869724932, 0.0003825710908356584,
             -0.00034046500868740456, 0.1413124436746325],
            [-0.42889630158379194, 0, 0, 0, 0, -4.697621415361164, 7.683421196062599,
             4.06898981839711, 0.3567271874552811, 0, 0, 0, -0.0013990241651590145,
             2.9475147891527724, -9.15095847217987],
        ],
        dense=[
            [1.0, -10.266057073759306, 48.161850968566455, -114.93304874997833, 147.46446875669767,
             -97.06685363011368, 25.69393346270375],
            *[[0]] * 4,
            [0, 13.917653631776606, -154.78787266663718, 522.921908960822, -456.2591884020879,
             -75.5319373213575, 154.18974869023643],
            [0, 2.605603751993609, -21.62282238462651, 2.5351820289667764, 292.25417465990404,
             -505.40999933296894, 231.5293791760455],
            [0, -15.018944223519686, 160.09447708973045, -474.3071826037643, 135.96036916173836,
             545.1091945264187, -357.6391179106141],
            [0, 3.050527683318488, -38.54396729189063, 174.47140009219885, -337.05134702387716,
             291.7898750908326, -93.40532418362432],
            [0, -1.3278744327655212, 16.661770430049543, -74.44027814126304, 140.75210016191605,
             -119.2562021040512, 37.45832313645163],
            [0, 2.8445336326728796, -36.55829548991012, 170.69007169147514, -345.9748485480495,
             313.299553623578, -104.0996495089623],
            [0, 0.7657106259527865, -9.906995535619368, 46.80299191887439, -96.51986946699569,
             88.74316650017616, -29.8402934266605],
            [0, -1.0889903364513334, 14.097013042320004, -66.68230591294365, 137.96299063474376,
             -127.82216401767992, 43.53345659001114],
            [0, 18.148505520854727, -127.63310949253875, 357.3419516129657, -500.7031507909224,
             349.17035710882897, -96.32455395918828],
            [0, -9.194632392478356, 93.3567459327894, -282.6272618704363, 361.14007718803333,
             -201.85219053352347, 39.17726167561544],
            [0, -4.436036387594894, 56.68120539776666, -261.77342902691703, 520.9742236688994,
             -461.1727999101397, 149.72683625798564],
        ],
        order=8,
        errors=[
            [0.01312004499419488, 0, 0, 0, 0, -1.2251564463762044, -0.4957589496572502,
             1.6643771824549864, -0.35032884874997366, 0.3341791187130175, 0.08192320648511571,
             -0.022355307863886294, 0],
            [-0.18980075407240762, 0, 0, 0, 0, 4.450312892752409, 1.8915178993145003,
             -5.801203960010585, -0.4226823213237919, -0.1521609496625161, 0.20136540080403034,
             0.02265179219836082, 0],
        ],
        error_order=7,
        extra=3,
    )  # fmt: skip
