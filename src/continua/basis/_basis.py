"""What every basis has in common."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property
from numbers import Real
from typing import Any, ClassVar, Literal, NamedTuple, Self

import torch
from torch import Tensor

from continua._errors import ArgumentError
from continua._values import Value, value, whole_number

Side = Literal["left", "right"]


class Point(NamedTuple):
    """A depth in [0, 1] and the side from which it is approached."""

    depth: float
    side: Side = "right"


class Basis(Value, ABC):
    r"""K functions of depth.

    .. math:: \theta(s) = \sum_{k=1}^{K} \phi_k(s)\, \theta_k, \qquad s \in [0, 1]

    A basis is a value: it holds no tensors, two bases of the same family and arguments are
    equal, and it can be a key of a dictionary.

    Attributes:
        size: the number of functions, K.
        breakpoints: the depths between which every function is smooth, 0 and 1 included.
        nodes: K points whose values determine the coefficients.
    """

    size: int
    positional = 1
    remedy = "make another one; continua.compress and continua.refine change the basis of a block"

    @property
    def breakpoints(self) -> tuple[float, ...]:
        return (0.0, 1.0)

    @property
    @abstractmethod
    def nodes(self) -> tuple[Point, ...]: ...

    @cached_property
    def jumps(self) -> tuple[float, ...]:
        """The inner breakpoints at which a function jumps, and does not only bend."""
        inner = self.breakpoints[1:-1]
        s = torch.tensor(inner, dtype=torch.float64, device="cpu")
        gaps = (self(s, "right") - self(s, "left")).abs().amax(-1)
        return tuple(b for b, gap in zip(inner, gaps.tolist(), strict=True) if gap > 1e-9)

    def __call__(self, s: Tensor | float, side: Side = "right") -> Tensor:
        """The K functions at depths of any shape: `[*s.shape, K]`, differentiable in s.

        Where a function jumps, `side` says which limit to take. The dtype is that of s.
        """
        # `as_tensor` would move a tensor to the default device.
        s = s if isinstance(s, Tensor) else torch.as_tensor(s)
        if not s.is_floating_point():
            if s.dtype == torch.bool or s.is_complex():
                raise ArgumentError(f"a depth is a real number, not {s.dtype}")
            s = s.to(torch.get_default_dtype())
        if side not in ("left", "right"):
            raise ArgumentError(f"side is 'left' or 'right', not {side!r}")
        if s.dtype in (torch.float32, torch.float64):
            return self._evaluate(s, side)
        return self._evaluate(self._upcast(s), side).to(s.dtype)

    @abstractmethod
    def _evaluate(self, s: Tensor, side: Side) -> Tensor:
        """`[*s.shape, K]` for s in single or double precision."""

    @abstractmethod
    def degree_on(self, width: float) -> int:
        """The degree of a polynomial that stands for each function on a cell of this width.

        Exact for piecewise polynomials; enough for a relative error of 1e-13 otherwise.
        """

    def points_on(self, width: float, error: float) -> int:
        """How many Gauss points a cell of this width needs for an error relative to the maximum."""
        enough = self.degree_on(width) // 2 + 1
        return gauss_points(self._phase(width, error), error, enough) if self.frequency else enough

    def _phase(self, width: float, error: float) -> float:
        """The radians of a wave that is as hard to integrate over a cell of this width."""
        return self.frequency * width

    @property
    def frequency(self) -> float:
        """How fast the functions vary inside a cell, in radians per unit of depth.

        An adaptive solver whose steps are differentiated must resolve every function, also one
        whose coefficient is still zero; zero where stopping at the breakpoints is enough.
        """
        return 0.0

    @classmethod
    @abstractmethod
    def of_size(cls, size: int) -> Self:
        """The largest member of the family with at most this many functions."""

    @abstractmethod
    def refined(self, factor: int = 2) -> tuple[Basis, Tensor]:
        """A basis that is finer by a factor, and the exact map `[K_finer, K]` of coefficients."""

    def halved(self) -> Basis:
        """A basis with about half the functions, whose `refined` is this one where one exists.

        Example:
            >>> from continua import PiecewiseLinear
            >>> PiecewiseLinear(5).halved()
            PiecewiseLinear(3)
        """
        return self.of_size(max(self.size // 2, 1))

    def resized(self, size: int) -> Self:
        """The member of the family with so many functions, all else being equal.

        Example:
            >>> from continua import Fourier
            >>> Fourier(4, period=2.0).resized(3)
            Fourier(1, period=2.0)
        """
        near = type(self).of_size(size)
        first = {name: getattr(near, name) for name in list(self.arguments())[:1]}
        try:
            made = type(self)(**self.arguments() | first)
        except ArgumentError as error:
            raise ArgumentError(f"{self!r} has no member of {size} functions: {error}") from None
        if made.size != size:
            raise ArgumentError(
                f"{self!r} has no member of {size} functions; the next smaller one has {made.size}"
            )
        return made

    def _upcast(self, s: Tensor) -> Tensor:
        # A breakpoint rounded to half precision must still be that breakpoint.
        exact = torch.tensor(self.breakpoints, dtype=torch.float32, device=s.device)
        hit = s.unsqueeze(-1) == exact.to(s.dtype)  # [..., breakpoints]
        wide = s.to(torch.float32)
        shift = torch.where(hit.any(-1), exact[hit.int().argmax(-1)] - wide, 0.0)
        return wide + shift.detach()  # the shift is a constant: s keeps its derivative


@value
class Sized(Basis):
    """A basis whose size is its first argument.

    Args:
        size: the number of functions, K.
    """

    size: int
    counted: ClassVar[str] = "functions"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count(f"the number of {self.counted}", self.size)

    @classmethod
    def of_size(cls, size: int) -> Self:
        return cls(size)


MOST = 2**20  # functions; breakpoints of more would fill the memory before anything is computed


def sample(basis: Basis, points: Sequence[Point]) -> Tensor:
    """The basis at points that carry their side: `[P, K]` in float64.

    Example:
        >>> from continua.basis import PiecewiseConstant, Point
        >>> sample(PiecewiseConstant(2), [Point(0.5, "left"), Point(0.5, "right")])
        tensor([[1., 0.],
                [0., 1.]], dtype=torch.float64)
    """
    s = torch.tensor([point.depth for point in points], dtype=torch.float64, device="cpu")
    if len(basis.breakpoints) == 2:  # smooth: both sides are the same
        return basis(s)
    left = torch.tensor([point.side == "left" for point in points], device="cpu")
    return torch.where(left[:, None], basis(s, "left"), basis(s, "right"))


def check_count(name: str, value: int, least: int = 1) -> int:
    """The value, if it is a whole number that is large enough and not absurdly large."""
    return whole_number(name, value, least, MOST)


def check_positive(name: str, value: Any) -> float:
    """The value as a float, if it is a positive number."""
    real = isinstance(value, Real) and not isinstance(value, bool)
    if not real or not 0 < value <= sys.float_info.max:
        raise ArgumentError(f"{name} is a positive number, not {value!r}")
    return float(value)


def equispaced(count: int) -> tuple[float, ...]:
    """0, 1/(count-1), ..., 1, each correctly rounded, so that equal rationals are equal floats."""
    return tuple(i / (count - 1) for i in range(count))


def gauss_points(phase: float, error: float, most: int = 10_000) -> int:
    r"""The fewest Gauss points that integrate a wave of so many radians over a cell.

    The error of n points is at most

    .. math:: \frac{2^{2n+1} (n!)^4}{(2n+1)\,[(2n)!]^3} \left(\frac{a}{2}\right)^{2n}

    for a wave of `phase` a and size one, on a cell of length two; `most` are known to be enough.
    """
    if phase <= 0 or error >= 1:
        return 1
    n, bound = 0, 2.0
    while bound > 2 * error and n < most:
        n += 1
        # The ratio of the bound for n points to that for n - 1.
        bound *= n * phase * phase / (8 * (2 * n + 1) * (2 * n - 1) ** 2)
    return n


def padding(larger: int, smaller: int) -> Tensor:
    """The coefficient map of a family whose members are prefixes of each other."""
    return torch.eye(larger, smaller, dtype=torch.float64, device="cpu")
