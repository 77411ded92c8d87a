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
