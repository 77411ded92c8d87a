"""Where a block's solver evaluates its field, worked out once."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

import torch

from continua.basis import Basis, PiecewiseConstant, Point, Side, least_squares, sample
from continua.field import Expansion, Sampling
from continua.solve import PART, Span, Stage

if TYPE_CHECKING:
    from ._block import ODEBlock


#: how many fixed grids are kept: a forward and a backward one, and those of a few other calls
GRIDS = 8


class Stretch:
    """A span of depths, over which bases that live on [0, 1] are stretched."""

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
        self._grids: dict[int, tuple[Sequence[Stage], Sequence[Point]]] = {}

    def points(self, stages: Sequence[Stage]) -> Sequence[Point]:
        """The depths of stages as points; those of a fixed grid, a tuple, are kept."""
        known, points = self._grids.get(id(stages), ((), ()))
        if known is not stages:
            points = [self.point(stage.depth, stage.side) for stage in stages]
            if isinstance(stages, tuple):
                if len(self._grids) >= GRIDS:
                    self._grids.clear()
                self._grids[id(stages)] = stages, points
        return points

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


class Plan:
    """A fixed grid: its stages, depths, and the bases there."""

    def __init__(self, stages: tuple[Stage, ...], stretch: Stretch, expansion: Expansion):
        self.stages = stages
        self.points = tuple(stretch.exactly(Fraction(stage.depth), stage.side) for stage in stages)
        self.depths = torch.tensor(
            [float(stage.depth) for stage in stages], dtype=torch.float64, device="cpu"
        )
        self.samplings = {
            basis: Sampling.of(basis, self.points) for basis in expansion.bases.values()
        }
        self.inverses = {
            basis: least_squares(sample(basis, self.points), rcond=1e-7)
            for basis in dict.fromkeys(expansion.state.values())
        }
        #: whether every tensor of every evaluation is a coefficient
        self.picked = all(sampling.rows is None for sampling in self.samplings.values())
        self._placed: dict[tuple[torch.dtype, torch.device], Plan] = {}

    def placed(self, dtype: torch.dtype, device: torch.device) -> Plan:
        """The plan in this precision and on this device; it is kept."""
        made = self._placed.get((dtype, device))
        if made is None:
            made = object.__new__(Plan)
            made.stages, made.points, made.depths = self.stages, self.points, self.depths
            made.samplings = {b: s.placed(dtype, device) for b, s in self.samplings.items()}
            made.inverses = {b: i.to(device) for b, i in self.inverses.items()}
            if not torch.compiler.is_compiling():
                self._placed[dtype, device] = made
        return made

    def part(self, start: int, stop: int) -> Plan:
        """Some of its evaluations, for a solve that updates no state."""
        made, at = object.__new__(Plan), slice(start, stop)
        made.stages, made.points = self.stages[at], self.points[at]
        made.depths = self.depths[at]
        made.samplings = {b: s.part(start, stop) for b, s in self.samplings.items()}
        made.inverses = {}
        return made

    @property
    def heavy(self) -> bool:
        """Whether the weights of all evaluations take much more memory than their coefficients."""
        return len(self.points) > PART and any(
            s.rows is not None and len(s.rows) > PART for s in self.samplings.values()
        )


def warn_unread(block: ODEBlock, where: str = "") -> None:
    """Warn of buckets that no evaluation of the field reads: their weights never train."""
    for basis in dict.fromkeys(block.expansion.bases.values()):
        if block.plan is None or not isinstance(basis, PiecewiseConstant):
            continue
        read = sample(basis, block.plan.points).any(0)
        if not bool(read.all()):
            warnings.warn(
                f"{block.solver!r} reads {int(read.sum())} of the {basis.size} buckets of {basis!r}"
                f"{where}, and never the others; give a smaller basis= as well, or more steps",
                stacklevel=4,
            )
