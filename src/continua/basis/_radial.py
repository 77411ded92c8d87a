"""Radial basis functions on equispaced centres."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NoReturn, Self

import torch
from torch import Tensor

from continua._errors import ArgumentError
from continua._values import value

from ._basis import Point, Side, Sized, check_positive, equispaced


@value
class _Radial(Sized):
    """One function per centre, of the distance to it in units of the width."""

    counted = "centres"
    width: float = None  # type: ignore[assignment]  # then the distance of two centres

    def __post_init__(self) -> None:
        super().__post_init__()
        width = self._distance if self.width is None else self.width
        width = check_positive("the width of a radial function", width)
        object.__setattr__(self, "width", width)

    @property
    def _distance(self) -> float:
        """From one centre to the next."""
        return 1 / (self.size - 1) if self.size > 1 else 1.0

    @property
    def nodes(self) -> tuple[Point, ...]:
        return tuple(map(Point, equispaced(self.size) if self.size > 1 else (0.5,)))

    def _radius(self, s: Tensor) -> Tensor:
        centres = torch.tensor([p.depth for p in self.nodes], dtype=s.dtype, device=s.device)
        return (s.unsqueeze(-1) - centres) / self.width  # [..., K]

    def refined(self, factor: int = 2) -> NoReturn:
        raise ArgumentError(
            f"no larger {type(self).__name__} contains {self!r}; "
            "compress to a BSpline or Legendre basis, then refine that"
        )

    def halved(self) -> Self:
        """Half the centres; a width that is not the default one stays as it is."""
        half = self.of_size(max(self.size // 2, 1))
        return half if self.width == self._distance else replace(half, width=self.width)

    @property
    def frequency(self) -> float:
        return 2 / self.width


@value
class GaussianRBF(_Radial):
    r"""Gaussian bumps.

    .. math:: \phi_k(s) = \exp(-r_k^2 / 2), \qquad r_k = (s - c_k) / w

    Args:
        size: the number of centres, K, equispaced on [0, 1].
        width: w; by default the distance of two centres.

    Example:
        >>> GaussianRBF(3)(torch.tensor(0.5))
        tensor([0.6065, 1.0000, 0.6065])
    """

    def _evaluate(self, s: Tensor, side: Side) -> Tensor:
        return torch.exp(-0.5 * self._radius(s).square())

    def degree_on(self, width: float) -> int:
        return math.ceil(4 * width / self.width) + 30

    def _phase(self, width: float, error: float) -> float:
        # Of its spectrum exp(-(w ω)²/2), what lies above the error.
        return width / self.width * math.sqrt(2 * math.log(1 / min(error, 0.5)))


@value
class MultiquadricRBF(_Radial):
    r"""Multiquadrics: hyperbolas that open with the distance to their centre.

    .. math:: \phi_k(s) = \sqrt{1 + r_k^2}, \qquad r_k = (s - c_k) / w

    Args:
        size: the number of centres, K, equispaced on [0, 1].
        width: w; by default the distance of two centres.

    Example:
        >>> MultiquadricRBF(3)(torch.tensor(0.5))
        tensor([1.4142, 1.0000, 1.4142])
    """

    def _evaluate(self, s: Tensor, side: Side) -> Tensor:
        return torch.sqrt(1 + self._radius(s).square())

    def degree_on(self, width: float) -> int:
        return math.ceil(16 * width / self.width) + 40

    def points_on(self, width: float, error: float) -> int:
        # It branches at the distance w from the real axis; Gauss quadrature converges like
        # ρ^(-2n), where ρ is the sum of the axes of the ellipse that reaches so far.
        decay = 2 * math.asinh(2 * self.width / width)
        found = math.ceil(math.log(4 / min(error, 0.5)) / decay)
        return min(found, self.degree_on(width) // 2 + 1)
