"""Functions that are smooth on the whole span: polynomials, waves and radial functions."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import NoReturn, Self

import torch
from torch import Tensor

from continua._errors import ArgumentError
from continua._values import value

from ._basis import Basis, Point, Side, Sized, check_count, check_positive, equispaced, padding


@value
class Constant(Basis):
    """One function, equal to one: weights that do not change with depth.

    This is the neural ODE of Chen et al. (2018), *autonomous* in NANODE.

    Example:
        >>> Constant()(torch.tensor([0.1, 0.9]))
        tensor([[1.],
                [1.]])
    """

    size = 1
    nodes = (Point(0.5),)

    def _evaluate(self, s: Tensor, side: Side) -> Tensor:
        return (1 + 0 * s).unsqueeze(-1)

    def degree_on(self, width: float) -> int:
        return 0

    @classmethod
    def of_size(cls, size: int) -> Constant:
        check_count("the number of functions", size)
        return cls()

    def refined(self, factor: int = 2) -> tuple[Basis, Tensor]:
        check_count("factor", factor)
        return self, padding(1, 1)


@value
class _Recurrent(Sized):
    """Polynomials by a three-term recurrence; the members of a family are nested prefixes."""

    counted = "polynomials"

    @property
    def nodes(self) -> tuple[Point, ...]:
        # The zeros of the Chebyshev polynomial, ascending, are good interpolation nodes.
        angles = (math.pi * (k + 0.5) / self.size for k in range(self.size))
        return tuple(Point(0.5 - 0.5 * math.cos(angle)) for angle in angles)

    @abstractmethod
    def _next(self, n: int, x: Tensor, last: Tensor, before: Tensor) -> Tensor:
        """Function n + 1 from functions n and n - 1."""

    def _argument(self, s: Tensor) -> Tensor:
        return 2 * s - 1

    def _evaluate(self, s: Tensor, side: Side) -> Tensor:
        x = self._argument(s)
        values = [1 + 0 * s, x]
        for n in range(1, self.size - 1):
            values.append(self._next(n, x, values[-1], values[-2]))
        return torch.stack(values[: self.size], -1)

    def degree_on(self, width: float) -> int:
        return self.size - 1

    @property
    def frequency(self) -> float:
        return 2.0 * (self.size - 1)

    def _phase(self, width: float, error: float) -> float:
        # Chebyshev's T_n is a wave in the angle, which turns fastest at the ends of the span.
        return self.frequency * math.asin(math.sqrt(min(width, 1.0)))

    def refined(self, factor: int = 2) -> tuple[Basis, Tensor]:
        larger = type(self)(self.size * check_count("factor", factor))
        return larger, padding(larger.size, self.size)


@value
class Polynomial(_Recurrent):
    r"""The K monomials up to degree K - 1.

    .. math:: \phi_n(s) = s^n

    Ill-conditioned beyond about ten functions, and hard to train (NANODE reports it): prefer
    `Legendre` or `Chebyshev`, which span the same space.

    Example:
        >>> Polynomial(3)(torch.tensor(0.5))
        tensor([1.0000, 0.5000, 0.2500])
    """

    def _argument(self, s: Tensor) -> Tensor:
        return s

    def _next(self, n: int, x: Tensor, last: Tensor, before: Tensor) -> Tensor:
        return x * last


@value
class Legendre(_Recurrent):
    r"""The first K Legendre polynomials, stretched to [0, 1]: orthogonal there.

    .. math:: (n+1)\,P_{n+1}(x) = (2n+1)\,x\,P_n(x) - n\,P_{n-1}(x), \qquad x = 2s - 1

    Example:
        >>> Legendre(3)(torch.tensor(1.0))
        tensor([1., 1., 1.])
    """

    def _next(self, n: int, x: Tensor, last: Tensor, before: Tensor) -> Tensor:
        return ((2 * n + 1) * x * last - n * before) / (n + 1)


@value
class Chebyshev(_Recurrent):
    r"""The first K Chebyshev polynomials of the first kind, stretched to [0, 1].

    .. math:: T_{n+1}(x) = 2x\,T_n(x) - T_{n-1}(x), \qquad x = 2s - 1

    Example:
        >>> Chebyshev(3)(torch.tensor(0.0))
        tensor([ 1., -1.,  1.])
    """

    def _next(self, n: int, x: Tensor, last: Tensor, before: Tensor) -> Tensor:
        return 2 * x * last - before


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
        super().__post_init__()
        check_count("the order of a Fourier basis", self.order, least=0)
        given = check_positive("the period of a Fourier basis", self.period)
        object.__setattr__(self, "period", given)

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
        return torch.cat([(1 + 0 * s).unsqueeze(-1), waves], -1)

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


@value
class _Radial(Sized):
    """One function per centre, of the distance to it in units of the width.

    Args:
        size: the number of functions, K.
        width: w; by default the distance of two centres.
    """

    counted = "centres"
    width: float = None  # type: ignore[assignment]  # then the distance of two centres

    def __post_init__(self) -> None:
        super().__post_init__()
        given = self._distance if self.width is None else self.width
        object.__setattr__(self, "width", check_positive("the width of a radial function", given))

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
        return self.resized(max(self.size // 2, 1))

    def resized(self, size: int) -> Self:
        """So many centres; a width that is not the default one stays as it is."""
        return type(self)(size) if self.width == self._distance else super().resized(size)

    @property
    def frequency(self) -> float:
        return 2 / self.width


@value
class GaussianRBF(_Radial):
    r"""Gaussian bumps around K equispaced centres.

    .. math:: \phi_k(s) = \exp(-r_k^2 / 2), \qquad r_k = (s - c_k) / w

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
    r"""Multiquadrics: hyperbolas that open with the distance to one of K equispaced centres.

    .. math:: \phi_k(s) = \sqrt{1 + r_k^2}, \qquad r_k = (s - c_k) / w

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
