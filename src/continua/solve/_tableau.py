"""Butcher tableaus."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

Number = int | str | Fraction


def _fractions(row: Sequence[Number]) -> tuple[Fraction, ...]:
    return tuple(Fraction(value) for value in row)


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
            extension, which gives the state within a step at no further evaluation.
        order: of the method at the end of the step.
    """

    c: tuple[Fraction, ...]
    a: tuple[tuple[Fraction, ...], ...]
    b: tuple[Fraction, ...]
    dense: tuple[tuple[Fraction, ...], ...]
    order: int

    def __init__(
        self,
        *,
        c: Sequence[Number],
        a: Sequence[Sequence[Number]],
        dense: Sequence[Sequence[Number]],
        order: int,
    ):
        rows = tuple(_fractions(row) for row in dense)
        object.__setattr__(self, "c", _fractions(c))
        object.__setattr__(self, "a", tuple(_fractions(row) for row in a))
        object.__setattr__(self, "dense", rows)
        object.__setattr__(self, "b", tuple(sum(row, Fraction(0)) for row in rows))
        object.__setattr__(self, "order", order)

    @property
    def stages(self) -> int:
        return len(self.c)

    def weights(self, theta: float) -> list[float]:
        """b(theta), the weights of the stages at the fraction theta of a step."""
        return [
            sum(float(d) * theta**power for power, d in enumerate(row, start=1))
            for row in self.dense
        ]
