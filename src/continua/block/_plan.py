"""Where a block's solver evaluates its field, worked out once."""

from __future__ import annotations

import bisect
import functools
import math
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.utils._python_dispatch import _get_current_dispatch_mode

from continua.basis import Basis, PiecewiseConstant, Point, Side
from continua.field import Samplings
from continua.solve import PART, Solver, Span, Stage

if TYPE_CHECKING:
    from ._block import ODEBlock


@dataclass(unsafe_hash=True)
class Stretch:
    """A span of depths, over which bases that live on [0, 1] are stretched.

    Attributes:
        breaks: the depths between which all functions are smooth.
        jumps: those of them at which one jumps.
    """

    span: Span
    bases: tuple[Basis, ...]

    def __post_init__(self) -> None:
        low, high = map(Fraction, sorted(self.span))
        self._low, self._width, self._length = low, high - low, float(high - low)
        inner = sorted({b for basis in self.bases for b in basis.breakpoints[1:-1]})
        # The way back from such a depth must be exact.
        self._known = {float(low + self._width * Fraction(b)): b for b in inner}
        self.breaks = tuple(self._known)
        jumps = {b for basis in self.bases for b in basis.jumps}
        self.jumps = tuple(s for s, b in self._known.items() if b in jumps)

    def point(self, s: float | Fraction, side: Side) -> Point:
        """A depth of the span as a point of the bases."""
        known = nearby(self.breaks, float(s), self._length) if self.breaks else None
        if known is not None:
            return Point(self._known[known], side)
        if isinstance(s, Fraction):
            return Point(float((s - self._low) / self._width), side)
        return Point((s - float(self._low)) / self._length, side)

    def points(self, stages: Iterable[Stage]) -> list[Point]:
        """The depths of stages as points of the bases."""
        return [self.point(stage.depth, stage.side) for stage in stages]


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


class Plan(Samplings):
    """A fixed grid: its stages and their depths, and the bases there."""

    def __init__(self, stages: Sequence[Stage], stretch: Stretch, inverted: Iterable[Basis] = ()):
        super().__init__(stretch.points(stages), stretch.bases, inverted)
        self.stages, self.depths = stages, depths_of(stages)
        #: a few evaluations each, where the weights of all take much more memory than their
        #: coefficients
        self.parts: list[Plan] = []
        if any(s.rows is not None and len(s.rows) > PART for s in self.samplings.values()):
            starts = range(0, len(stages), PART)
            self.parts = [Plan(stages[n : n + PART], stretch) for n in starts]
        self._converted: dict[tuple[torch.dtype, torch.device], Samplings] = {}

    def to(self, dtype: torch.dtype, device: torch.device) -> Samplings:
        """The bases in this precision and on this device; they are kept."""
        found = self._converted.get((dtype, device))
        if found is None:
            with torch.inference_mode(False):  # training uses them later
                found = super().to(dtype, device)
            if _makes_real_tensors():
                self._converted[dtype, device] = found
        return found

    def __deepcopy__(self, memo: object) -> Plan:
        return self  # it is a value


def depths_of(stages: Iterable[Stage]) -> Tensor:
    """Their depths in double precision."""
    depths = [float(stage.depth) for stage in stages]
    return torch.tensor(depths, dtype=torch.float64, device="cpu")


def make_plan(
    solver: Solver,
    span: Span,
    jumps: tuple[float, ...],
    stretch: Stretch,
    inverted: tuple[Basis, ...] = (),
) -> Plan | None:
    """The fixed grid of a solver; None for an adaptive one.

    Args:
        solver: whose evaluations are planned.
        span: of the solve.
        jumps: of the field.
        stretch: the bases over the span of the block.
        inverted: the bases of the state.
    """
    make = _known_plan if _makes_real_tensors() else _plan
    return make(solver, span, jumps, stretch, inverted)


def _makes_real_tensors() -> bool:
    """Whether tensors that are made now can be used later."""
    return not torch.compiler.is_compiling() and _get_current_dispatch_mode() is None


def _plan(
    solver: Solver,
    span: Span,
    jumps: tuple[float, ...],
    stretch: Stretch,
    inverted: tuple[Basis, ...],
) -> Plan | None:
    stages = solver.schedule(span, jumps)
    with torch.inference_mode(False):
        return None if stages is None else Plan(stages, stretch, inverted)


_known_plan = functools.lru_cache(maxsize=64)(_plan)  # blocks of a model are often alike


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
