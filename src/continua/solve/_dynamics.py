"""What is integrated, as solvers and gradients see it."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, NamedTuple, Self

import torch
from torch import Tensor

State = tuple[Tensor, ...]
Evaluate = Callable[[State], State]
Span = tuple[float, float]
Depths = Sequence[float]
Side = Literal["left", "right"]
Terms = list[tuple[int, float]]
Weights = Sequence[float]
#: evaluations on some tensors, and what they leave behind in a step of a given length
Traced = Callable[
    [Sequence[Tensor], Sequence[Tensor]],
    tuple[Sequence[Evaluate], Callable[[Tensor], Sequence[Tensor | None]]],
]
#: a step from its number and its start to its end and the slopes at its stages
Take = Callable[[int, State], tuple[State, list[State]]]

#: how many evaluations have their weights in memory at once, where they are not kept anyway
PART = 16


class Stage(NamedTuple):
    """One evaluation of the field: a depth, and the side from which it is sampled."""

    depth: Fraction | float
    side: Side


@dataclass(frozen=True)
class Reading:
    """The field at some stages, cut off from the graph that made its weights."""

    evaluate: Sequence[Evaluate]  # the field at each stage
    leaves: Sequence[Tensor]  # what it depends on besides the state
    pull: Callable[[Sequence[Tensor | None]], None]  # passes the gradients of the leaves on
    used: Sequence[Sequence[int]]  # the places of the leaves that each stage depends on


class Source(ABC):
    """What the evaluations of compiled steps read, as tensors."""

    shared: Sequence[Tensor]  # the same at every evaluation
    signature: Sequence[object]  # everything else: another program is needed where it changes
    code: object  # what is called, whose attributes an evaluation must not change
    state: int = 0  # how many of the rows are state that is updated
    weights: int = 0  # how many of the rows, the first ones, get gradients
    numbers: int = 0  # how many numbers the rows of one stage are
    programs: Any = None  # of the solve, for a source that reads by programs too

    @abstractmethod
    def rows(self, stages: Sequence[Stage]) -> Sequence[Tensor]:
        """What varies, `[E, ...]` with a row for each stage: weights, then state, then others."""

    @abstractmethod
    def traced(self, stages: Sequence[Stage]) -> Traced:
        """The field at so many stages as a function of what is shared and of rows."""

    @abstractmethod
    def pull(self, stages: Sequence[Stage], gradients: Mapping[int, Sequence[Tensor]]) -> None:
        """Gather the gradients of rows at these stages by place, `[e, ...]` each, in order."""

    @abstractmethod
    def gradients(self, shared: Mapping[int, Tensor]) -> Sequence[Tensor | None]:
        """Of each of `Dynamics.tensors`, from those of what is shared, by place."""


class Steps(ABC):
    """How the steps of a solve are taken, where a compiled program takes them."""

    @abstractmethod
    def on_grid(self, h: float, stages: Sequence[Stage]) -> Take:
        """What takes step n of a fixed grid."""

    sizes: Tensor  # of the state and the slope where steps last started, in units of tolerance

    @abstractmethod
    def first(self, stage: Stage, z: State) -> State:
        """The slope where steps start."""

    @abstractmethod
    def change(self, stage: Stage, h: float, z: State, k: State) -> float:
        """How much an Euler step to a stage changes the slope, in units of tolerance."""

    @abstractmethod
    def attempt(
        self, stages: Sequence[Stage], h: float, z: State, k: State
    ) -> tuple[State, list[State], float]:
        """The end of a step of a pair, the slopes at its stages, and its error.

        Where nothing reads the slopes between the first and the last, they may be missing.
        """


class Dynamics(ABC):
    """A field that is read at many stages at once."""

    steps: Steps | None = None  # None takes steps operation by operation

    breakpoints: tuple[float, ...] = ()  # the depths between which the field is smooth
    jumps: tuple[float, ...] = ()  # those at which it may jump
    tensors: tuple[Tensor, ...] = ()  # what it depends on besides state and depth, for gradients
    frequency: float = 0.0  # how fast it varies with depth, in radians, if steps must resolve that
    varies: bool = False  # whether functions of depth vary between the breakpoints
    driven: bool = False  # whether it reads the depth itself, in a way not known beforehand
    noisy: bool = False  # whether two evaluations may differ, as with dropout
    stateful: bool = False  # whether it changes state, as batch norm does in training

    def __enter__(self) -> Self:
        """Make the field ready to be read."""
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """Release what `__enter__` took."""
        return None

    def commit(self) -> None:
        """Update the state of the field by the accepted evaluations of a solve that succeeded."""
        return None

    @abstractmethod
    def at(self, stages: Sequence[Stage]) -> Sequence[Evaluate]:
        """The field at each stage, differentiable in whatever it is made of."""

    def on_grid(self, stages: Callable[[], Sequence[Stage]]) -> Sequence[Evaluate]:
        """The field at all stages of the solver's fixed grid, which may be known already."""
        every = stages()
        return in_parts(len(every), lambda start, stop: self.at(every[start:stop]))

    def points(self, width: float, error: float) -> int:
        """How many Gauss points integrate what depends on depth itself to this relative error."""
        return 1

    def accept(self) -> None:
        """The evaluations of the last `at` were part of the solution, not of a rejected step."""
        return None

    def again(self) -> contextlib.AbstractContextManager[Rerun]:
        """Make the field ready to be evaluated once more, for a backward pass."""
        raise NotImplementedError

    def source(self) -> Source:
        """The field for compiled steps."""
        raise NotImplementedError


class Rerun(ABC):
    """A field that a backward pass evaluates again: weights and state as they were, not updated."""

    def __init__(self, count: int):
        self.gathered: list[Tensor | None] = [None] * count  # a gradient for each tensor

    @abstractmethod
    def read(self, stages: Sequence[Stage], leaves: bool = True) -> Reading:
        """The field at each stage with leaves in place of its tensors, if gradients are wanted."""

    def gather(self, place: int, gradient: Tensor | None) -> None:
        """Add to the gradient of one of `Dynamics.tensors`."""
        known = self.gathered[place]
        if gradient is not None:
            self.gathered[place] = gradient if known is None else known + gradient

    def source(self) -> Source:
        """The field for compiled steps."""
        raise NotImplementedError


def in_parts(count: int, read: Callable[[int, int], Sequence[Evaluate]]) -> Sequence[Evaluate]:
    """Evaluations that `read(start, stop)` makes ready a few at a time, as they are called."""
    part = -1
    ready: Sequence[Evaluate] = ()

    def evaluate(i: int) -> Evaluate:
        def f(z: State) -> State:
            nonlocal part, ready
            if part != i // PART:
                ready = ()  # freed before the next ones are made
                part = i // PART
                ready = read(part * PART, min(part * PART + PART, count))
            return ready[i % PART](z)

        return f

    return read(0, count) if count <= PART else [evaluate(i) for i in range(count)]


def combine(z: State, ks: Sequence[State], terms: Terms) -> State:
    """Z + Σ w_i k_i; only the first sum allocates, and no sum is needed by a backward pass."""
    if len(z) == 1:  # the usual case, where the time between evaluations counts
        return (_total(z[0], ks, 0, terms),)
    return tuple(_total(start, ks, leaf, terms) for leaf, start in enumerate(z))


def _total(start: Tensor, ks: Sequence[State], leaf: int, terms: Terms) -> Tensor:
    out = start
    for i, w in terms:
        k = ks[i][leaf]
        out = torch.add(start, k, alpha=w) if out is start else out.add_(k, alpha=w)
    return out


def nonzero(weights: Weights) -> Terms:
    """The weights that count, each with its place."""
    return [(i, w) for i, w in enumerate(weights) if w]


def linear(weights: Weights, states: Sequence[State]) -> State:
    """The sum of some states, each times its weight."""
    (first, w), *rest = nonzero(weights)
    start = states[first] if w == 1 else tuple(x * w for x in states[first])
    return combine(start, states, rest)
