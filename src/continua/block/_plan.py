"""Where a block's solver evaluates its field, worked out once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Self, cast

import torch
from torch import Tensor

from continua.basis import Basis, Point, Side, least_squares, sample
from continua.field import Expansion, Sampling
from continua.solve import PART, Span, Stage


class Stretch:
    """A span of depths, over which bases that live on [0, 1] are stretched.

    Args:
        span: from which depth to which.
        bases: those of a block.

    Attributes:
        breaks: the depths of the span where a basis breaks.
        jumps: those where it jumps.
    """

    def __init__(self, span: Span, bases: Iterable[Basis]):
        self._low, self._high = sorted(span)
        self._start = Fraction(self._low)
        self._width = Fraction(self._high) - self._start
        bases = set(bases)
        inner = sorted({b for basis in bases for b in basis.breakpoints[1:-1]})
        # The way back from such a depth must be exact.
        self._known = {float(self._start + self._width * Fraction(b)): b for b in inner}
        self.breaks = tuple(self._known)
        jumps = {b for basis in bases for b in basis.jumps}
        self.jumps = tuple(s for s, b in self._known.items() if b in jumps)

    def point(self, s: float | Fraction, side: Side) -> Point:
        """A depth of the span as a point of the bases."""
        if s in self._known:
            return Point(self._known[float(s)], side)
        if isinstance(s, Fraction):
            return self.exactly(s, side)
        return Point((s - self._low) / (self._high - self._low), side)

    def exactly(self, s: Fraction, side: Side) -> Point:
        """The same for a depth that is a fraction."""
        return Point(float((s - self._start) / self._width), side)


@dataclass(frozen=True)
class Plan:
    """A fixed grid: its stages, depths, and the bases there.

    Attributes:
        stages: every evaluation of a solve.
        points: the same as points of the bases.
        depths: the same as a tensor.
        samplings: each basis there.
        inverses: for the bases of state, what turns values there into coefficients.
    """

    stages: tuple[Stage, ...]
    points: tuple[Point, ...]
    depths: Tensor
    samplings: dict[Basis, Sampling]
    inverses: dict[Basis, Tensor]

    @classmethod
    def of(cls, stages: tuple[Stage, ...], stretch: Stretch, expansion: Expansion) -> Self:
        """The plan in double precision."""
        points = tuple(stretch.exactly(Fraction(stage.depth), stage.side) for stage in stages)
        depths = torch.tensor(
            [float(stage.depth) for stage in stages], dtype=torch.float64, device="cpu"
        )
        samplings = {basis: Sampling.of(basis, points) for basis in expansion.bases.values()}
        inverses = {
            basis: least_squares(sample(basis, points), rcond=1e-7)
            for basis in dict.fromkeys(expansion.state.values())
        }
        return cls(stages, points, depths, samplings, inverses)

    def part(self, start: int, stop: int) -> Plan:
        """Some of its evaluations, for a solve that updates no state."""
        samplings = {basis: s.part(start, stop) for basis, s in self.samplings.items()}
        at = slice(start, stop)
        return Plan(self.stages[at], self.points[at], self.depths[at], samplings, {})

    @property
    def heavy(self) -> bool:
        """Whether the weights of all evaluations take much more memory than their coefficients."""
        return len(self.points) > PART and any(
            s.rows is not None and len(s.rows) > PART for s in self.samplings.values()
        )

    def tensors(
        self, dtypes: Mapping[Basis, torch.dtype], reference: Tensor
    ) -> dict[str, Tensor | None]:
        """What the plan holds, named, in these precisions and on the device of a tensor."""
        device = reference.device
        dtype = reference.dtype if reference.is_floating_point() else torch.get_default_dtype()
        held: dict[str, Tensor | None] = {"depths": self.depths.to(device, dtype)}
        for i, (basis, sampling) in enumerate(self.samplings.items()):
            placed = sampling.placed(dtypes[basis], device)
            held |= {f"rows{i}": placed.rows, f"picks{i}": placed.picks}
        for i, (basis, inverse) in enumerate(self.inverses.items()):
            held[f"inverse{i}"] = inverse.to(device, dtypes[basis])
        return held

    def holding(self, tensors: Mapping[str, Tensor | None]) -> Plan:
        """The same plan made of other tensors."""
        held = cast(Mapping[str, Tensor], tensors)
        samplings = {
            basis: Sampling(held[f"rows{i}"], sampling.index, held[f"picks{i}"], sampling.steady)
            for i, (basis, sampling) in enumerate(self.samplings.items())
        }
        inverses = {basis: held[f"inverse{i}"] for i, basis in enumerate(self.inverses)}
        return Plan(self.stages, self.points, held["depths"], samplings, inverses)
