"""What a solve gives back."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Stats:
    """What a solve cost.

    Attributes:
        evaluations: calls of the field.
        steps: steps taken.
    """

    evaluations: int
    steps: int


@dataclass(frozen=True)
class Solution:
    """A trajectory, where it was asked for.

    Attributes:
        s: the depths, `[T]`.
        z: the states there, `[T, ...]`.
        final: the state at the end of the span, whether it was asked for or not.
        stats: what it cost.
    """

    s: Tensor
    z: Tensor
    final: Tensor
    stats: Stats
