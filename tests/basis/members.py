"""Members of every family, and where to look at them: what the tests of this folder run over."""

import functools
import itertools
import math

import pytest
import torch
from torch import Tensor

from continua import ArgumentError
from continua._values import known
from continua.basis import (
    Basis,
    BSpline,
    DiscontinuousLinear,
    Fourier,
    GaussianRBF,
    MultiquadricRBF,
    PiecewiseConstant,
    PiecewiseLinear,
    Point,
    sample,
)

# Every family, by name.
FAMILIES = known(Basis)

# The families that are made of cells, whose functions jump or bend at the breakpoints.
PIECEWISE = (PiecewiseConstant, PiecewiseLinear, DiscontinuousLinear, BSpline)

# The families of which no larger member contains a smaller one.
RADIAL = (GaussianRBF, MultiquadricRBF)

# Members that `of_size` does not make.
MORE = (
    *(BSpline(size, degree) for degree in (0, 1, 2, 4) for size in (degree + 1, degree + 4)),
    *(Fourier(order, period) for order in (1, 2) for period in (0.5, 2.0, 2 * math.pi)),
    *(GaussianRBF(size, width) for size in (1, 4) for width in (0.1, 0.5)),
    *(MultiquadricRBF(size, width) for size in (1, 4) for width in (0.1, 0.5)),
)


@functools.cache
def members(family: type[Basis], largest: int = 6) -> tuple[Basis, ...]:
    """The distinct members of a family with at most this many functions."""
    found = [of_size(family, size) for size in range(1, largest + 1)]
    found += [b for b in MORE if type(b) is family and b.size <= largest]
    return tuple(dict.fromkeys(b for b in found if b is not None))


def of_size(family: type[Basis], size: int) -> Basis | None:
    """What `of_size` gives, or None where the family has nothing so small."""
    try:
        return family.of_size(size)
    except ArgumentError:
        return None


# Small members of every family, for tests that go through all of them.
ALL = [
    basis
    for family in FAMILIES.values()
    for basis in members(family)
    if basis in MORE or basis.size in (1, 2, 3, 6)
]


def everywhere(*bases: Basis, per_cell: int = 3) -> list[Point]:
    """Points that see all there is to see: both sides of every breakpoint, and between them."""
    ends = sorted({b for basis in bases for b in basis.breakpoints})
    points = [Point(end, side) for end in ends for side in ("left", "right")]
    for a, b in itertools.pairwise(ends):
        points += [Point(a + (b - a) * (i + 0.4) / per_cell) for i in range(per_cell)]
    return points


def difference(basis: Basis, c: Tensor, other: Basis, d: Tensor) -> float:
    """How far two functions of depth are apart, relative to the size of the second."""
    points = everywhere(basis, other)
    expected = sample(other, points) @ d
    error = (sample(basis, points) @ c - expected).abs().max()
    return (error / expected.abs().max().clamp(min=1e-300)).item()


def tensor(*values: float, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.tensor(values, dtype=dtype)


def random(*shape: int, seed: int = 0) -> Tensor:
    """Numbers between 0 and 1, the same every time."""
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(shape, dtype=torch.float64, generator=generator)


every_basis = pytest.mark.parametrize("basis", ALL, ids=repr)
every_family = pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)


def eye(size):
    return torch.eye(size, dtype=torch.float64)
