"""Global polynomials: constants, monomials, Legendre and Chebyshev."""

from __future__ import annotations

import math
from abc import abstractmethod

import torch
from torch import Tensor

from continua._values import value

from ._basis import Basis, Point, Side, Sized, check_count, padding


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
        return torch.ones_like(s).unsqueeze(-1) + 0 * s.unsqueeze(-1)

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
        values = [torch.ones_like(s) + 0 * s, x]
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
