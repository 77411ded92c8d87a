"""What every solver has in common, and what it gives back."""

from __future__ import annotations

import enum
import functools
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self, TypeVar

import torch
from torch import Tensor

from continua._errors import ArgumentError
from continua._tables import html_table, shape_of
from continua._values import Value, whole_number

from ._dynamics import Depths, Dynamics, Span, Stage, State
from ._interpolant import EveryStep

F = TypeVar("F", bound=Callable[..., Any])

Saves = Depths | EveryStep


def cached(f: F) -> F:
    """Cache a function of hashable arguments; `torch.compile` sees the function itself."""
    known = functools.lru_cache(maxsize=128)(f)

    @functools.wraps(f)
    def call(*args: Any) -> Any:
        return (f if torch.compiler.is_compiling() else known)(*args)

    return call  # type: ignore[return-value]


class Status(enum.Enum):
    """How a solve ended."""

    SUCCESS = "success"
    MAX_STEPS = "the limit of steps was reached"
    STEP_TOO_SMALL = "the step became too small"
    NON_FINITE = "the field or the state is not finite"


@dataclass(frozen=True)
class Failure:
    """Where and why a solve stopped."""

    depth: float  # the depth that was reached
    sample: int | None  # the sample that stopped the solve; None if the state has no samples
    norm: float  # the root mean square of the field there
    step: float  # the size of the last step that was tried


@dataclass
class Stats:
    """What a solve cost."""

    evaluations: int = 0  # calls of the field
    steps: int = 0  # steps that were taken
    rejected: int = 0  # steps that were tried and rejected
    step_sizes: list[float] = field(default_factory=list)  # of the steps that were taken
    backward: Stats | None = None  # of a backward pass that evaluated the field again


@dataclass(frozen=True, repr=False)
class Solution:
    """The result of a solve; states have the structure of the initial state.

    Attributes:
        s: the depths, `[T]`, or with a row per sample `[B, T]`.
        z: the states there, `[T, ...]` or `[B, T, ...]`.
        final: the state at the end of the span.
        cost: the integral of the running cost over the whole span, per sample.
        stats: the numbers of evaluations and steps, and the step sizes.
        status: success, or why the solve stopped.
        failure: where and why, if it failed.
        event_at: the depth of the event, or of each sample's; NaN without one.
        dense: the state as a function of depth; call the solution itself.
    """

    s: Tensor
    z: Any
    final: Any
    cost: Tensor | None
    stats: Stats
    status: Status = Status.SUCCESS
    failure: Failure | None = None
    event_at: Tensor | None = None
    dense: Callable[[Tensor], Any] | None = field(default=None, repr=False)

    def __call__(self, s: float | Tensor) -> Any:
        """The state at any depth of the span, for a solve with `dense=True`.

        Between the ends of a step it is the solver's own polynomial. It is differentiable by the
        depths too.

        Args:
            s: one depth, depths `[T]` for states `[T, ...]`, or `[B, T]`, a row per sample, for
                states `[B, T, ...]`.

        Example:
            >>> import torch, continua as ct
            >>> solution = ct.odeint(lambda s, z: -z, torch.ones(1), dense=True)
            >>> round(solution(0.5).item(), 3)  # exp(-0.5)
            0.607
        """
        if self.dense is None:
            raise ArgumentError("only a solve with dense=True can be called at other depths")
        return self.dense(torch.as_tensor(s, dtype=torch.float64))

    def rows(self) -> list[tuple[str, str]]:
        """A name and a description of each attribute, tensors by their shapes."""
        found = [("s", shape_of(self.s)), ("z", shape_of(self.z)), ("final", shape_of(self.final))]
        if self.cost is not None:
            found.append(("cost", shape_of(self.cost)))
        if self.event_at is not None:
            found.append(("event_at", shape_of(self.event_at)))
        found.append(("evaluations", str(self.stats.evaluations)))
        steps = f"{self.stats.steps}"
        if self.stats.rejected:
            steps += f" and {self.stats.rejected} rejected"
        found += [("steps", steps), ("status", self.status.value)]
        return found if self.failure is None else [*found, ("failure", repr(self.failure))]

    def __repr__(self) -> str:
        return f"Solution({', '.join(f'{name}={value}' for name, value in self.rows())})"

    def _repr_html_(self) -> str:
        return html_table([("Solution", ""), *self.rows()])


@dataclass
class Trajectory:
    """What a solver returns: states are tuples of leaves."""

    final: State
    saved: list[State]
    stats: Stats
    status: Status = Status.SUCCESS
    failure: Failure | None = None
    ends: list[float] = field(default_factory=list)  # of the steps, if `EveryStep` was saved


class Solver(Value, ABC):
    """How a trajectory is computed: a method and its step control.

    A solver is a value: it is frozen, and equal to any other with the same arguments.

    Attributes:
        steps: the number of equal steps; None where the solver chooses its own.
    """

    remedy: ClassVar[str] = "assign another one, as in block.solver = continua.RK4(steps=4)"
    steps: int | None

    @property
    def adaptive(self) -> bool:
        """Whether the solver chooses its own steps."""
        return self.steps is None

    def __post_init__(self) -> None:
        super().__post_init__()
        whole_number("steps", self.steps)

    def with_steps(self, steps: int) -> Self:
        """The same method on a fixed grid of so many steps."""
        return type(self)(steps=whole_number("steps", steps))  # type: ignore[call-arg]

    def refined(self, factor: int) -> Self:
        """The solver for a basis that is finer by this factor."""
        return self if self.steps is None else self.with_steps(self.steps * factor)

    def evaluations(self, span: Span) -> int | None:
        """How often a solve over this span calls the field; None if steps are adaptive."""
        stages = self.schedule(span, ())
        return None if stages is None else len(stages)

    @abstractmethod
    def schedule(self, span: Span, jumps: tuple[float, ...]) -> tuple[Stage, ...] | None:
        """Every evaluation of a field with these jumps, in order; None if steps are adaptive."""

    @property
    @abstractmethod
    def degree(self) -> int:
        """The degree of the polynomial that interpolates the solution within a step."""

    @abstractmethod
    def integrate(
        self, dynamics: Dynamics, z: State, span: Span, save_at: Saves = (), observe: Any = None
    ) -> Trajectory:
        """Integrate the field from the state z at the start of the span to its end.

        Args:
            dynamics: the field.
            z: the state at the start.
            span: from where to where.
            save_at: where to save states.
            observe: called with every step, or with the parts at the end of a reversible solve.
        """

    def fractions(self, span: Span, save_at: Saves) -> list[list[float]]:
        """For each step of the fixed grid the fractions of it at which to save states."""
        assert self.steps is not None
        if isinstance(save_at, EveryStep):
            return [list(save_at.fractions)] * self.steps
        h = (span[1] - span[0]) / self.steps
        out: list[list[float]] = [[] for _ in range(self.steps)]
        n = 0
        for s in save_at:
            position = (s - span[0]) / h
            while position > n + 1 + 1e-9 and n + 1 < self.steps:
                n += 1
            if position > 0:
                out[n].append(1.0 if position - n > 1 - 1e-9 else position - n)
        return out


def saved_at_start(z: State, save_at: Saves, later: int) -> list[State]:
    """The states that are saved at the start, if `later` others are saved within steps."""
    return [z] * (1 if isinstance(save_at, EveryStep) else len(save_at) - later)
