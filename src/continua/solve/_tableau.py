"""Butcher tableaus."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

Number = int | float | str | Fraction
Row = tuple[Fraction, ...]


class Floats(NamedTuple):
    """The coefficients in double precision."""

    a: list[list[float]]
    dense: list[list[float]]
    errors: list[list[float]]
    b: list[float]
    c: list[float]


def _rows(rows: Sequence[Sequence[Number]]) -> tuple[Row, ...]:
    return tuple(tuple(Fraction(x) for x in row) for row in rows)


def _floats(rows: Sequence[Row]) -> list[list[float]]:
    return [list(map(float, row)) for row in rows]


class Tableau:
    r"""An explicit Runge-Kutta method in exact numbers.

    .. math:: k_i = f(s + c_i h,\; z + h \sum_{j<i} a_{ij} k_j), \qquad
              z(s + \theta h) = z + h \sum_i b_i(\theta)\, k_i
    """

    def __init__(
        self,
        *,
        c: Sequence[Number],  # where the stages lie within a step
        a: Sequence[Sequence[Number]],  # how each stage is made from the earlier ones
        dense: Sequence[Sequence[Number]],  # of b(theta): the factors of theta, theta^2, ...
        order: int,  # of the method at the end of the step
        errors: Sequence[Sequence[Number]] = (),  # the error estimate; two rows where it mixes two
        error_order: int = 0,  # how the estimate scales with the length of the step
        extra: int = 0,  # how many of the stages only b(theta) needs; they come last
    ):
        self.a, self.dense, self.errors, (self.c,) = map(_rows, (a, dense, errors, [c]))
        self.order, self.error_order, self.extra = order, error_order, extra
        b = tuple(sum(row, Fraction(0)) for row in self.dense)
        last = len(c) - extra - 1
        # Where the argument of the last stage is the next state, its row says b most exactly.
        end = (*self.a[last], *[Fraction(0)] * (len(c) - last))
        #: whether the last of the other stages is the first of the next step
        self.fsal = last > 0 and all(abs(x - y) < 1e-9 for x, y in zip(b, end, strict=True))
        self.b = end if self.fsal else b  # the weights at the end of the step
        b_row, c_row = _floats([self.b, self.c])
        many = (_floats(self.a), _floats(self.dense), _floats(self.errors))
        self.floats = Floats(*many, b_row, c_row)

    @property
    def stages(self) -> int:
        """How many stages carry a step to its end."""
        return len(self.c) - self.extra - self.fsal

    @property
    def leading(self) -> float:
        """How large the error estimate is for dz/ds = s^q / q! over one step of length one."""
        power, floats = self.error_order, self.floats
        total = sum(e * at**power for e, at in zip(floats.errors[0], floats.c, strict=False))
        return abs(total) / math.factorial(power)

    def weights(self, theta: float) -> list[float]:
        """b(theta), the weights of the stages at the fraction theta of a step."""
        rows = self.floats.dense
        powers = [theta**power for power in range(1, max(map(len, rows)) + 1)]
        return [sum(d * p for d, p in zip(row, powers, strict=False)) for row in rows]
