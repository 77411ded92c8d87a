"""Where a block's solver evaluates its field, worked out once."""

from __future__ import annotations

import bisect
import math
import warnings
from collections.abc import Hashable, Iterable, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

import torch
from torch.utils._python_dispatch import _get_current_dispatch_mode

from continua.basis import Basis, PiecewiseConstant, Point, Side, least_squares, sample
from continua.field import Sampling
from continua.solve import PART, Solver, Span, Stage

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
        if self.breaks:
            known = nearby(self.breaks, float(s), float(self._width))
            if known is not None:
                return Point(self._known[known], side)
        if isinstance(s, Fraction):
            return self.exactly(s, side)
        return Point((s - self._low) / (self._high - self._low), side)

    def exactly(self, s: Fraction, side: Side) -> Point:
        """The same for a depth that is a fraction."""
        return Point(float((s - self._start) / self._width), side)


def nearby(breaks: Sequence[float], s: float, width: float) -> float | None:
    """The breakpoint that a depth is, but for rounding: the grid of a part of a span may miss it.

    Args:
        breaks: in increasing order.
        s: the depth.
        width: of the span.
    """
    i = bisect.bisect_left(breaks, s)
    found = min(breaks[max(i - 1, 0) : i + 1], key=lambda b: abs(b - s), default=math.inf)
    return found if abs(found - s) <= 1e-12 * width else None


class Plan:
    """A fixed grid: its stages, depths, and the bases there."""

    def __init__(
        self,
        stages: tuple[Stage, ...],
        stretch: Stretch,
        bases: Iterable[Basis],
        state: Iterable[Basis],
    ):
        self.stages = stages
        self.points = tuple(stretch.exactly(Fraction(stage.depth), stage.side) for stage in stages)
        self.depths = torch.tensor(
            [float(stage.depth) for stage in stages], dtype=torch.float64, device="cpu"
        )
        self.samplings = {basis: Sampling.of(basis, self.points) for basis in bases}
        self.inverses = {
            basis: least_squares(sample(basis, self.points), rcond=1e-7) for basis in state
        }
        self._placed: dict[tuple[torch.dtype, torch.device], Plan] = {}

    def placed(self, dtype: torch.dtype, device: torch.device) -> Plan:
        """The plan in this precision and on this device; it is kept."""
        made = self._placed.get((dtype, device))
        if made is None:
            made = object.__new__(Plan)
            made.stages, made.points, made.depths = self.stages, self.points, self.depths
            with torch.inference_mode(False):  # training uses it later
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


#: those of blocks that are alive: blocks of a model are often alike
_plans: WeakValueDictionary[Hashable, Plan] = WeakValueDictionary()


def planned(
    solver: Solver, span: Span, bases: Iterable[Basis], state: Iterable[Basis]
) -> tuple[Stretch, Plan | None]:
    """The span under these bases, and the fixed grid on it; None for an adaptive solver."""
    every, of_state = tuple(dict.fromkeys(bases)), tuple(dict.fromkeys(state))
    stretch, key = Stretch(span, every), (solver, span, every, of_state)
    real = _get_current_dispatch_mode() is None  # and no mode makes other tensors
    plan = _plans.get(key) if real else None
    if plan is None:
        stages = solver.schedule(span, stretch.jumps)
        if stages is None:
            return stretch, None
        with torch.inference_mode(False):
            plan = Plan(stages, stretch, every, of_state)
        if real:
            _plans[key] = plan
    return stretch, plan


def warn_unread(block: ODEBlock, where: str = "") -> None:
    """Warn of buckets that no evaluation of the field reads: their weights never train."""
    for basis in dict.fromkeys(block.expansion.bases.values()):
        if block.plan is None or not isinstance(basis, PiecewiseConstant):
            continue
        read = len(set(block.plan.samplings[basis].index))
        if read < basis.size:
            warnings.warn(
                f"{block.solver!r} reads {read} of the {basis.size} buckets of {basis!r}"
                f"{where}, and never the others; give a smaller basis= as well, or more steps",
                stacklevel=3,
            )
