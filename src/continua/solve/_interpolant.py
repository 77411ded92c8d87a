"""A solve as a function of depth."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from continua._errors import ArgumentError, ShapeError

from ._dynamics import Span, State


@dataclass(frozen=True)
class EveryStep:
    """Save the state at the start, and at some fractions of every step."""

    fractions: tuple[float, ...]  # of a step; the last one is 1
    stop: Callable[[float, State], bool] | None = None  # whether a saved state ends the solve

    @classmethod
    def of(cls, degree: int, stop: Callable[[float, State], bool] | None = None) -> EveryStep:
        """Save at the Chebyshev nodes that determine a polynomial of this degree on a step."""
        places = (0.5 - 0.5 * math.cos(math.pi * j / degree) for j in range(1, degree + 1))
        return cls(tuple(places), stop)

    def depths(self, ends: Sequence[float]) -> list[float]:
        """The depths of the saved states, given the ends of the steps."""
        inside = (a + (b - a) * x for a, b in itertools.pairwise(ends) for x in self.fractions)
        return [ends[0], *inside]

    def stops(self, start: float, end: float, states: Sequence[State]) -> bool:
        """Whether the solve ends with this step."""
        if self.stop is None:
            return False
        places = self.depths([start, end])[1:]
        return any(self.stop(s, z) for s, z in zip(places, states, strict=True))


class Interpolant:
    """The solution between saved states: on every step the polynomial through them."""

    def __init__(self, ends: Sequence[float], every: EveryStep, states: Sequence[State]):
        self.span = ends[0], ends[-1]
        self._nodes = (0.0, *every.fractions)
        leaves = zip(*states, strict=True)
        self._leaves = [torch.stack(leaf) for leaf in leaves]  # [steps * degree + 1, ...]
        self._ends = torch.tensor(ends, dtype=torch.float64, device=states[0][0].device)

    def __call__(self, s: Tensor) -> State:
        """The leaves of the state at depths `[]`, `[T]`, or `[B, T]` with a row per sample."""
        s = s.to(self._ends)
        check_depths(s, self.span, [leaf.shape[1:] for leaf in self._leaves])
        n, theta = self._place(s)
        degree = len(self._nodes) - 1
        index = n.unsqueeze(-1) * degree + torch.arange(degree + 1, device=n.device)
        weights = self._weights(theta)  # [..., degree + 1]
        return tuple(self._combined(leaf, index, weights) for leaf in self._leaves)

    def _place(self, s: Tensor) -> tuple[Tensor, Tensor]:
        """The steps in which depths lie, and the fractions of those steps."""
        start, end = self._ends[:-1], self._ends[1:]
        direction = 1.0 if self.span[1] > self.span[0] else -1.0
        n = torch.bucketize(s.detach() * direction, end[:-1] * direction)
        return n, (s - start[n]) / (end - start)[n]

    def _weights(self, theta: Tensor) -> Tensor:
        """The Lagrange polynomials of the nodes, `[..., degree + 1]`."""
        apart = [theta - x for x in self._nodes]
        rows = []
        for j, x in enumerate(self._nodes):
            others = [m for m in range(len(self._nodes)) if m != j]
            scale = math.prod(x - self._nodes[m] for m in others)
            rows.append(math.prod((apart[m] for m in others[1:]), start=apart[others[0]]) / scale)
        return torch.stack(rows, -1)

    def _combined(self, leaf: Tensor, index: Tensor, weights: Tensor) -> Tensor:
        if index.dim() == 3:  # each sample from its own rows
            own = torch.arange(len(index), device=leaf.device)[:, None, None]
            index = index * leaf.shape[1] + own
            leaf = leaf.flatten(0, 1)
        rows = leaf.flatten(1) if leaf.dim() > 1 else leaf[:, None]
        rows = rows.index_select(0, index.flatten())  # whose gradient is quick
        rows = rows.reshape(*index.shape, rows.shape[1])  # [..., degree + 1, R]
        out = weights.to(leaf.dtype).unsqueeze(-2) @ rows
        return out.reshape(*index.shape[:-1], *leaf.shape[1:])


def check_depths(s: Tensor, span: Span, shapes: Sequence[torch.Size]) -> None:
    """Refuse depths outside the span, and rows of depths that do not fit the batch."""
    low, high = sorted(span)
    slack = 1e-6 * (high - low)  # an end point in single precision is still the end point
    outside = ~((s >= low - slack) & (s <= high + slack))
    if outside.any():
        raise ArgumentError(
            f"depth {float(s.detach()[outside][0]):g} is outside the span "
            f"({span[0]:g}, {span[1]:g}) of the solution"
        )
    if s.dim() > 2:
        raise ShapeError(f"depths have shape [], [T] or [B, T], not {list(s.shape)}")
    for shape in shapes:
        if s.dim() == 2 and shape[:1] != s.shape[:1]:
            raise ShapeError(
                f"depths of shape {list(s.shape)} have one row per sample, but the state "
                f"has shape {list(shape)}"
            )
