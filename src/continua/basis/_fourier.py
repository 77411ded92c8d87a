"""Trigonometric polynomials."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from continua._values import value

from ._basis import Basis, Point, Side, check_count, check_positive, padding


@value
class Fourier(Basis):
    r"""The constant, and cosines and sines of the first harmonics.

    .. math:: 1,\ \cos(2\pi n s / T),\ \sin(2\pi n s / T), \qquad n = 1 \dots \text{order}

    With `period=2 * math.pi` this is the trigonometric polynomial of NANODE, whose frequencies
    are integers on s in [0, 1]; with the default the functions are orthogonal, as in the
    Galerkin models of Dissecting Neural ODEs.

    Args:
        order: the number of harmonics; 2 * order + 1 functions.
        period: T, in units of the block's span.

    Example:
        >>> Fourier(1)(torch.tensor(0.25)).round(decimals=3)
        tensor([1., -0., 1.])
    """

    order: int
    period: float = 1.0

    def __post_init__(self) -> None:
        check_count("the order of a Fourier basis", self.order, least=0)
        period = check_positive("the period of a Fourier basis", self.period)
        object.__setattr__(self, "period", period)

    @property
    def size(self) -> int:  # type: ignore[override]  # a field elsewhere
        return 2 * self.order + 1

    @property
    def nodes(self) -> tuple[Point, ...]:
        # Within one period, or the interpolation would be singular.
        reach = min(1.0, self.period)
        return tuple(Point(reach * (k + 0.5) / self.size) for k in range(self.size))

    def _evaluate(self, s: Tensor, side: Side) -> Tensor:
        n = torch.arange(1, self.order + 1, dtype=s.dtype, device=s.device)
        angle = (2 * math.pi / self.period) * s.unsqueeze(-1) * n  # [..., order]
        waves = torch.stack([angle.cos(), angle.sin()], -1).flatten(-2)
        one = torch.ones_like(s).unsqueeze(-1) + 0 * s.unsqueeze(-1)
        return torch.cat([one, waves], -1)

    def degree_on(self, width: float) -> int:
        # The Chebyshev coefficients of a wave fall off once the degree exceeds its phase.
        phase = math.pi * self.order * width / self.period
        return math.ceil(1.2 * phase) + 28 if self.order else 0

    @property
    def frequency(self) -> float:
        return 2 * math.pi * self.order / self.period

    @classmethod
    def of_size(cls, size: int) -> Fourier:
        check_count("the number of functions", size)
        return cls((size - 1) // 2)

    def refined(self, factor: int = 2) -> tuple[Basis, Tensor]:
        check_count("factor", factor)
        larger = Fourier(max(self.order * factor, factor - 1), self.period)
        return larger, padding(larger.size, self.size)

    def halved(self) -> Fourier:
        return Fourier(self.order // 2, self.period)
