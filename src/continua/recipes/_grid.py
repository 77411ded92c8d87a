"""The variants of a model that a sweep measures."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from torch import nn

import continua as ct
from continua._values import known
from continua.solve import SOLVERS
from continua.transform import blocks

from ._parse import nearest

Method = Literal["project", "interpolate"]


@dataclass(frozen=True)
class Grid:
    """Which variants of a model to measure.

    Attributes:
        bases: families to write it in.
        sizes: numbers of basis functions; by default the powers of two below the model's own, and
            that.
        schemes: solvers to run it with.
        steps: their numbers; by default the powers of two up to twice the model's own.
        methods: of the change of basis.
        product: every combination, instead of sizes at the model's own solver, solvers at its
            own basis, and each size with as many steps.
    """

    bases: tuple[str, ...] = ("PiecewiseConstant", "PiecewiseLinear")
    sizes: tuple[int, ...] = ()
    schemes: tuple[str, ...] = ("Euler", "Midpoint", "RK4")
    steps: tuple[int, ...] = ()
    methods: tuple[Method, ...] = ("project", "interpolate")
    product: bool = False

    def __post_init__(self) -> None:
        for names, choices, what in (
            (self.bases, known(ct.Basis), "basis"),
            (self.schemes, SOLVERS, "solver"),
        ):
            for name in names:
                if name not in choices:
                    raise nearest(name, choices, what)
        for values, what in ((self.sizes, "sizes"), (self.steps, "steps")):
            for value in values:
                if value < 1:
                    raise ct.ArgumentError(f"{what} are whole numbers of at least 1, not {value}")


Plan = tuple[tuple[str, int, str, int, str], ct.Basis | None, ct.Solver | None, Method | None]


def variants(model: nn.Module, grid: Grid) -> Iterator[Plan]:
    """The model itself, then its variants in the grid, each once."""
    block = next(iter(blocks(model).values()))
    basis = next(iter(block.expansion.weights.values()))
    solver = block.solver
    steps = solver.steps
    if steps is None:
        raise ct.ArgumentError(
            f"the model's solver {solver!r} chooses its own steps; a sweep needs a fixed grid: "
            "continua compress RUN OUT --solver 'RK4(steps=8)' makes one"
        )
    family, size, scheme = type(basis).__name__, basis.size, type(solver).__name__
    yield (family, size, scheme, steps, "source"), None, None, None
    sizes = grid.sizes or tuple(sorted({*_powers(size), size}))
    counts = grid.steps or tuple(sorted({*_powers(2 * steps), steps}))
    wanted: list[tuple[str, int, str, int, Method]] = []
    written = itertools.product(grid.bases, sizes, grid.methods)
    if grid.product:
        wanted += [
            (b, k, s, n, m) for (b, k, m), s, n in itertools.product(written, grid.schemes, counts)
        ]
    else:
        wanted += [(b, k, scheme, steps, m) for b, k, m in written]
        wanted += [
            (family, size, s, n, "project") for s, n in itertools.product(grid.schemes, counts)
        ]
        wanted += [(family, k, scheme, k, "project") for k in sizes]
    seen = {(family, size, scheme, steps)}
    methods: set[tuple[Any, ...]] = set()
    for name, k, s, n, method in wanted:
        try:
            target = known(ct.Basis)[name].of_size(k)
        except ct.ArgumentError:
            continue  # the family has no basis as small as this
        key = (name, target.size, s, n)
        if key in seen or (*key, method) in methods:
            continue  # the source itself, or already yielded: a family may lack this size
        methods.add((*key, method))
        unchanged = (name, target.size) == (family, size)
        yield (*key, method), None if unchanged else target, SOLVERS[s](steps=n), method  # type: ignore[call-arg]


def _powers(most: int) -> list[int]:
    return [2**i for i in range(most.bit_length()) if 2**i <= most]
