"""What is integrated, as solvers and gradients see it."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
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
#: from shared tensors and rows to the evaluations, and a function of the step size that gives the
#: updated state
Traced = Callable[
    [Sequence[Tensor], Sequence[Tensor]],
    tuple[Sequence[Evaluate], Callable[[Tensor], Sequence[Tensor | None]]],
]
#: from the number of a step and its start to its end and the slopes at its stages
Take = Callable[[int, State], tuple[State, list[State]]]

#: how many evaluations have their weights in memory at the same time when no graph keeps them
PART = 16


class Stage(NamedTuple):
    """One evaluation of the field: a depth, and the side from which it is sampled."""

    depth: Fraction | float
    side: Side


@dataclass(frozen=True)
class Reading:
    """The field at some stages, its weights detached from the coefficients they come from."""

    evaluate: Sequence[Evaluate]  # the field at each stage
    leaves: Sequence[Tensor]  # the weights, and other tensors that require a gradient
    accumulate: Callable[[Sequence[Tensor | None]], None]  # adds gradients of the leaves
    used: Sequence[Sequence[int]]  # for each stage the indices of the leaves that it depends on


class Source(ABC):
    """The tensors that compiled steps read: shared ones, and rows with an entry per stage."""

    shared: Sequence[Tensor]  # the same at every evaluation
    signature: Sequence[object]  # all else that a program depends on
    code: object  # what is called; an evaluation must not change its attributes
    state: int = 0  # the number of rows that are state and updated
    weights: int = 0  # the number of rows, the first ones, that get gradients
    numbers: int = 0  # the number of elements in the rows of one stage
    programs: Any = None  # those of the solve, for a source that reads with programs too

    @abstractmethod
    def rows(self, stages: Sequence[Stage]) -> Sequence[Tensor]:
        """What varies with the stage, `[E, ...]` each: weights, then state, then the rest."""

    @abstractmethod
    def traced(self, stages: Sequence[Stage]) -> Traced:
        """The field at this number of stages as a function of shared tensors and rows."""

    @abstractmethod
    def pull(self, stages: Sequence[Stage], gradients: Mapping[int, Sequence[Tensor]]) -> None:
        """Add the gradients of rows at these stages to the sums: by index, `[e, ...]` each."""

    @abstractmethod
    def gradients(self, shared: Mapping[int, Tensor]) -> Sequence[Tensor | None]:
        """The gradients of `Dynamics.tensors`, given those of the shared tensors by index."""


class Steps(ABC):
    """The steps of a solve, taken by compiled programs."""

    sizes: Tensor  # norms of state and slope at the last `first`, in units of the tolerance

    @abstractmethod
    def on_grid(self, h: float, stages: Sequence[Stage]) -> Take:
        """A function that takes step n of a fixed grid."""

    @abstractmethod
    def first(self, stage: Stage, z: State) -> State:
        """The slope at the start of a solve, or after a breakpoint."""

    @abstractmethod
    def change(self, stage: Stage, h: float, z: State, k: State) -> float:
        """How much an Euler step to a stage changes the slope, in units of the tolerance."""

    @abstractmethod
    def attempt(
        self, stages: Sequence[Stage], h: float, z: State, k: State
    ) -> tuple[State, list[State], float]:
        """The end of a step of a pair, the slopes at its stages, and its error.

        Slopes between the first and the last one are left out if nothing reads them.
        """


class Dynamics(ABC):
    """A field for one solve, which gives the evaluations of many stages at once."""

    steps: Steps | None = None  # compiled steps; None evaluates the field eagerly
    breakpoints: tuple[float, ...] = ()  # depths between which the field is smooth
    jumps: tuple[float, ...] = ()  # depths at which it may be discontinuous
    tensors: tuple[Tensor, ...] = ()  # what it depends on besides state and depth, for gradients
    frequency: float = 0.0  # radians per depth that adaptive steps must resolve
    varies: bool = False  # whether it depends on depth between the breakpoints
    reads_depth: bool = False  # whether it reads the depth itself, in an unknown way
    random: bool = False  # whether it may draw random numbers, as dropout does in training
    stateful: bool = False  # whether it updates state, as batch norm does in training

    def __enter__(self) -> Self:
        """Prepare the field for evaluations."""
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """Release what `__enter__` took."""
        return None

    def commit(self) -> None:
        """Update the field's state by the accepted evaluations; the solve has succeeded."""
        return None

    @abstractmethod
    def at(self, stages: Sequence[Stage]) -> Sequence[Evaluate]:
        """The field at each stage, in the graph of its weights."""

    def on_grid(self, stages: Callable[[], Sequence[Stage]]) -> Sequence[Evaluate]:
        """The field at all stages of a fixed grid, which `stages` works out if needed."""
        every = stages()
        return in_parts(len(every), lambda start, stop: self.at(every[start:stop]))

    def points(self, width: float, error: float) -> int:
        """How many Gauss points integrate the field's own depth dependence to a relative error."""
        return 1

    def accept(self) -> None:
        """Count the evaluations of the last `at` as part of the solution; its step was accepted."""
        return None

    def backward_field(self) -> contextlib.AbstractContextManager[BackwardField]:
        """Prepare the field for the evaluations of a backward pass."""
        raise NotImplementedError

    def source(self) -> Source:
        """The field for compiled steps."""
        raise NotImplementedError


class BackwardField(ABC):
    """The field in a backward pass: weights and state of the forward pass, without updates.

    Args:
        count: the number of `Dynamics.tensors`.
    """

    def __init__(self, count: int):
        self.gradients: list[Tensor | None] = [None] * count  # the gradient of each tensor

    @abstractmethod
    def read(self, stages: Sequence[Stage], leaves: bool = True) -> Reading:
        """The field at each stage; `leaves` says whether gradients by its tensors are wanted."""

    def accumulate(self, gradients: Iterable[Tensor | None], first: int = 0) -> None:
        """Add gradients to those of `Dynamics.tensors`, from index `first` on."""
        for place, gradient in enumerate(gradients, first):
            known = self.gradients[place]
            if gradient is not None:
                self.gradients[place] = gradient if known is None else known + gradient

    def source(self) -> Source:
        """The field for compiled steps."""
        raise NotImplementedError


def in_parts(count: int, read: Callable[[int, int], Sequence[Evaluate]]) -> Sequence[Evaluate]:
    """All evaluations; `read(start, stop)` prepares a part of them when the first is called."""
    part = -1
    ready: Sequence[Evaluate] = ()

    def evaluate(i: int) -> Evaluate:
        def f(z: State) -> State:
            nonlocal part, ready
            if part != i // PART:
                ready = ()  # free the last part before the next one is made
                part = i // PART
                ready = read(part * PART, min(part * PART + PART, count))
            return ready[i % PART](z)

        return f

    return read(0, count) if count <= PART else [evaluate(i) for i in range(count)]


def combine(z: State, ks: Sequence[State], terms: Terms) -> State:
    """Z + Σ w_i k_i; only the first sum allocates, as no sum is saved for a backward pass."""
    if len(z) == 1:  # the usual case; a generator would slow down small solves by a few percent
        return (_total(z[0], ks, 0, terms),)
    return tuple(_total(start, ks, leaf, terms) for leaf, start in enumerate(z))


def _total(start: Tensor, ks: Sequence[State], leaf: int, terms: Terms) -> Tensor:
    out = start
    for i, w in terms:
        k = ks[i][leaf]
        out = torch.add(start, k, alpha=w) if out is start else out.add_(k, alpha=w)
    return out


def nonzero(weights: Weights) -> Terms:
    """The weights other than zero, each with its index."""
    return [(i, w) for i, w in enumerate(weights) if w]


def linear(weights: Weights, states: Sequence[State]) -> State:
    """The sum of some states, each times its weight."""
    (first, w), *rest = nonzero(weights)
    start = states[first] if w == 1 else tuple(x * w for x in states[first])
    return combine(start, states, rest)
