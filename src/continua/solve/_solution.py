"""What a solve gives back."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from ._dynamics import State


class Status(enum.Enum):
    """How a solve ended."""

    SUCCESS = "success"
    MAX_STEPS = "the limit of steps was reached"
    STEP_TOO_SMALL = "the step became too small"
    NON_FINITE = "the field or the state is not finite"


@dataclass(frozen=True)
class Failure:
    """Where and why a solve stopped."""

    depth: float  # how far it came
    sample: int | None  # the sample that stopped it, where the state has samples
    norm: float  # the root mean square of the field there
    step: float  # the last step that was tried


@dataclass
class Stats:
    """What a solve cost, and its backward pass, once one has run that solves or evaluates."""

    evaluations: int = 0  # calls of the field
    steps: int = 0  # that were taken
    rejected: int = 0  # steps that were tried and given up
    step_sizes: list[float] = field(default_factory=list)  # of the steps that were taken
    backward: Stats | None = None


@dataclass(frozen=True)
class Solution:
    """A trajectory, where it was asked for, in the structure of the state that was given.

    Attributes:
        s: the depths, `[T]`.
        z: the states there, `[T, ...]`.
        final: the state at the end of the span, whether it was asked for or not.
        cost: the integral of the running cost over the whole span, per sample.
        stats: what it cost.
        status: how it ended.
        failure: where and why, if it failed.
    """

    s: Tensor
    z: Any
    final: Any
    cost: Tensor | None
    stats: Stats
    status: Status = Status.SUCCESS
    failure: Failure | None = None


@dataclass
class Trajectory:
    """What a solver hands to a gradient: a `Solution` in terms of leaves."""

    final: State
    saved: list[State]
    stats: Stats
    status: Status = Status.SUCCESS
    failure: Failure | None = None
