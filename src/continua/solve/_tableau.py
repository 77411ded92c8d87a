"""Butcher tableaus."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import NamedTuple

Number = int | float | str | Fraction
Row = tuple[Fraction, ...]


class Floats(NamedTuple):
    """The coefficients in double precision."""

    a: list[list[float]]
    b: list[float]
    c: list[float]
    dense: list[list[float]]
    errors: list[list[float]]


def _rows(rows: Sequence[Sequence[Number]]) -> tuple[Row, ...]:
    return tuple(tuple(Fraction(x) for x in row) for row in rows)


def _floats(rows: Sequence[Row]) -> list[list[float]]:
    return [list(map(float, row)) for row in rows]


@dataclass(frozen=True, init=False)
class Tableau:
    r"""An explicit Runge-Kutta method in exact numbers.

    .. math:: k_i = f(s + c_i h,\; z + h \sum_{j<i} a_{ij} k_j), \qquad
              z(s + \theta h) = z + h \sum_i b_i(\theta)\, k_i

    """

    c: Row  # where the stages lie within a step
    a: tuple[Row, ...]  # how each stage is made from the earlier ones, one row per stage
    b: Row  # the weights of the stages at the end of the step, b(1)
    dense: tuple[Row, ...]  # per stage the coefficients of b(theta) for theta, theta^2, ...
    order: int  # of the method at the end of the step
    errors: tuple[Row, ...] = ()  # the weights of the error estimate; two rows where it mixes two
    error_order: int = 0  # how the estimate scales with the length of the step
    extra: int = 0  # how many of the stages only b(theta) needs; they come last
    fsal: bool = False  # whether the last of the other stages is the first of the next step
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
        weights, rows, estimates, (places,) = _rows(dense), _rows(a), _rows(errors), _rows([c])
        b = tuple(sum(row, Fraction(0)) for row in weights)
        last = len(c) - extra - 1
        # Where the argument of the last stage is the next state, its row says b most exactly.
        end = (*rows[last], *[Fraction(0)] * (len(c) - last))
        fsal = last > 0 and all(abs(x - y) < 1e-9 for x, y in zip(b, end, strict=True))
        b = end if fsal else b
        b_row, c_row = _floats([b, places])
        floats = Floats(_floats(rows), b_row, c_row, _floats(weights), _floats(estimates))
        vars(self).update(c=places, a=rows, b=b, dense=weights, order=order, errors=estimates)
        vars(self).update(error_order=error_order, extra=extra, fsal=fsal, floats=floats)

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
