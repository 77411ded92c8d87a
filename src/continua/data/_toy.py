"""Points in the plane that two classes share, generated from a seed."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from continua._errors import ArgumentError, MissingPackageError
from continua._values import whole_number

from ._dataset import Dataset, Part
from ._split import checked_seed, cut

HELD_OUT = 0.25

Generate = Callable[[int, float, int], tuple[Tensor, Tensor]]


def _scikit_learn(
    function: str, n: int, noise: float, seed: int, **more: float
) -> tuple[Tensor, Tensor]:
    try:
        from sklearn import datasets
    except ImportError as error:
        raise MissingPackageError(
            f"{function} is part of scikit-learn, which is not installed"
        ) from error
    points, labels = getattr(datasets, function)(n, noise=noise, random_state=seed, **more)
    return torch.from_numpy(points).float(), torch.from_numpy(labels).long()


def moons(n: int, noise: float, seed: int) -> tuple[Tensor, Tensor]:
    """Two half circles that reach into each other."""
    return _scikit_learn("make_moons", n, noise, seed)


def circles(n: int, noise: float, seed: int) -> tuple[Tensor, Tensor]:
    """Circles of radius 1 (class 0) and 0.5 (class 1), at equal distances before the noise."""
    return _scikit_learn("make_circles", n, noise, seed, factor=0.5)


def annuli(n: int, noise: float, seed: int) -> tuple[Tensor, Tensor]:
    """Annuli of radius 2 (class 0) and 1 (class 1), at random angles.

    No flow in the plane separates them: one annulus would have to cross the other.

    S. Massaroli et al., *Dissecting Neural ODEs*, 2020.
    """
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(n) % 2
    angle = 2 * math.pi * torch.rand(n, generator=generator)
    circle = torch.stack([angle.cos(), angle.sin()], 1) * (2 - labels)[:, None]
    return circle + noise * torch.randn(n, 2, generator=generator), labels


def spirals(n: int, noise: float, seed: int) -> tuple[Tensor, Tensor]:
    """Two arms of one and a half turns, out to radius 2, each within the other."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(n) % 2
    # The square root spreads the points evenly along the arm.
    turned = torch.rand(n, generator=generator).sqrt()
    angle = 3 * math.pi * turned + math.pi * labels
    arm = torch.stack([angle.cos(), angle.sin()], 1) * (2 * turned)[:, None]
    return arm + noise * torch.randn(n, 2, generator=generator), labels


def checkerboard(n: int, noise: float, seed: int) -> tuple[Tensor, Tensor]:
    """Squares of one colour, spread evenly, on a board of four by four from -2 to 2.

    The class is that of the row, counted from below: 0 for the first and the third, 1 for the
    second and the fourth. Without noise the density is 1/8 on the eight squares and 0 elsewhere,
    and 1/4 on the four of each class.
    """
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(n) % 2
    row = 2 * torch.randint(0, 2, (n,), generator=generator) + labels
    column = 2 * torch.randint(0, 2, (n,), generator=generator) + labels
    corner = torch.stack([column, row], 1) - 2.0
    inside = torch.rand(n, 2, generator=generator)
    return corner + inside + noise * torch.randn(n, 2, generator=generator), labels


def read_toy(
    name: str,
    generate: Generate,
    *,
    seed: int,
    validation: float,
    n: int,
    noise: float,
) -> Dataset:
    """A quarter of the points for the test, a share of the rest for validation.

    Args:
        name: of the set.
        generate: the points and their classes.
        seed: of the points and the parts.
        validation: the share of the points outside the test part.
        n: how many points in all.
        noise: the standard deviation of what is added to both coordinates.
    """
    checked_seed(seed)
    n = whole_number("n", n, 8)
    if not isinstance(noise, int | float) or not 0.0 <= noise < math.inf:
        raise ArgumentError(f"noise is a standard deviation from 0 on, not {noise!r}")
    rest, test = cut(Part(*generate(n, float(noise), seed)), HELD_OUT, seed)
    train, held = cut(rest, validation, seed)
    return Dataset(name, train, held, test, classes=2)
