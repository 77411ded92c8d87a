"""Butcher tableaus."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction

Number = int | float | str | Fraction
Row = tuple[Fraction, ...]
Floats = tuple[list[list[float]], list[float], list[float], list[list[float]]]


def _row(row: Sequence[Number]) -> Row:
    return tuple(Fraction(value) for value in row)


def _rows(rows: Sequence[Sequence[Number]]) -> tuple[Row, ...]:
    return tuple(_row(row) for row in rows)


@dataclass(frozen=True, init=False)
class Tableau:
    r"""An explicit Runge-Kutta method in exact numbers.

    .. math:: k_i = f(s + c_i h,\; z + h \sum_{j<i} a_{ij} k_j), \qquad
              z(s + \theta h) = z + h \sum_i b_i(\theta)\, k_i

    Attributes:
        c: where the stages lie within a step.
        a: how each stage is made from the earlier ones, one row per stage.
        b: the weights of the stages at the end of the step, b(1).
        dense: per stage the coefficients of b(theta) for theta, theta^2, ...: the continuous
            extension, which gives the state within a step.
        order: of the method at the end of the step.
        errors: weights of the stages in the estimate of the error of a step; none for a method
            without one, two where the estimate combines two embedded methods.
        error_order: of the error estimate, which sets how a step's error scales with its length.
        extra: how many of the stages only the continuous extension needs; they come last.
        fsal: whether the last stage of a step (before the extra ones) is the first of the next.
        floats: a, b, c and errors once more as floats, which every step needs.
    """

    c: Row
    a: tuple[Row, ...]
    b: Row
    dense: tuple[Row, ...]
    order: int
    errors: tuple[Row, ...] = ()
    error_order: int = 0
    extra: int = 0
    fsal: bool = False
    floats: Floats = field(init=False, repr=False, compare=False)

    def __init__(
        self,
        *,
        c: Sequence[Number],
        a: Sequence[Sequence[Number]],
        dense: Sequence[Sequence[Number]],
        order: int,
        errors: Sequence[Sequence[Number]] = (),
        error_order: int = 0,
        extra: int = 0,
    ):
        weights, rows = _rows(dense), _rows(a)
        b = tuple(sum(row, Fraction(0)) for row in weights)
        last = len(c) - extra - 1
        # Where the argument of the last stage is the next state, its row says b most exactly.
        end = (*rows[last], *[Fraction(0)] * (len(c) - last))
        fsal = last > 0 and all(abs(x - y) < 1e-9 for x, y in zip(b, end, strict=True))
        values = {
            "c": _row(c),
            "a": rows,
            "dense": weights,
            "b": end if fsal else b,
            "order": order,
            "errors": _rows(errors),
            "error_order": error_order,
            "extra": extra,
            "fsal": fsal,
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)
        a = [[float(value) for value in row] for row in self.a]
        errs = [[float(value) for value in row] for row in self.errors]
        floats = (a, [float(b) for b in self.b], [float(c) for c in self.c], errs)
        object.__setattr__(self, "floats", floats)

    @property
    def stages(self) -> int:
        """How many stages carry a step to its end."""
        return len(self.c) - self.extra - self.fsal

    @property
    def leading(self) -> float:
        """How large the error estimate is for dz/ds = s^q / q! over one step of length one."""
        power = self.error_order
        total = sum(e * at**power for e, at in zip(self.errors[0], self.c, strict=False))
        return abs(float(total)) / math.factorial(power)

    def weights(self, theta: float) -> list[float]:
        """b(theta), the weights of the stages at the fraction theta of a step."""
        return [
            sum(float(d) * theta**power for power, d in enumerate(row, start=1))
            for row in self.dense
        ]
