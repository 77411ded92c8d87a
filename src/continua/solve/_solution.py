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
    """Where and why a solve stopped.

    Attributes:
        depth: how far it came.
        sample: the sample that stopped it, where the state has samples.
        norm: the root mean square of the field there.
        step: the last step that was tried.
    """

    depth: float
    sample: int | None
    norm: float
    step: float


@dataclass
class Stats:
    """What a solve cost.

    Attributes:
        evaluations: calls of the field.
        steps: steps that were taken.
        rejected: steps that were tried and given up.
        step_sizes: the lengths of the steps that were taken.
        backward: the same for the backward pass, once one has run that solves or evaluates.
    """

    evaluations: int = 0
    steps: int = 0
    rejected: int = 0
    step_sizes: list[float] = field(default_factory=list)
    backward: Stats | None = None


@dataclass(frozen=True)
class Solution:
    """A trajectory, where it was asked for.

    The states have the structure that the solve was given: a tensor, or a tuple or dictionary of
    tensors.

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
    """What a solver hands to a gradient: everything in terms of leaves.

    Attributes:
        final: the state at the end.
        saved: the states that were asked for.
        stats: what it cost.
        status: how it ended.
        failure: where and why, if it failed.
    """

    final: State
    saved: list[State]
    stats: Stats
    status: Status = Status.SUCCESS
    failure: Failure | None = None
