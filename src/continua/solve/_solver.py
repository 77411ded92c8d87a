"""What every solver has in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Self

from continua._errors import ArgumentError
from continua._values import Value

from ._dynamics import Dynamics, Span, Stage, State
from ._solution import Trajectory


class Solver(Value, ABC):
    """How a trajectory is computed: a method and its step control.

    A solver is a value: frozen, and equal to any other with the same arguments.

    Attributes:
        steps: the number of equal steps; None where the solver chooses its own.
    """

    remedy: ClassVar[str] = "assign another one, as in block.solver = continua.RK4(steps=4)"
    steps: int | None

    @property
    def adaptive(self) -> bool:
        """Whether the solver chooses its own steps."""
        return self.steps is None

    @abstractmethod
    def with_steps(self, steps: int) -> Self:
        """The same method on a fixed grid of so many steps."""

    def refined(self, factor: int) -> Self:
        """The solver for a basis that is finer by this factor."""
        return self if self.steps is None else self.with_steps(self.steps * factor)

    @abstractmethod
    def evaluations(self, span: Span) -> int | None:
        """How often a solve over this span calls the field; None if that is not known before."""

    @abstractmethod
    def schedule(self, span: Span, jumps: Sequence[float]) -> tuple[Stage, ...] | None:
        """Every evaluation of a solve, in order; None if the solver chooses its own steps.

        Args:
            span: from where to where.
            jumps: where the field may jump.
        """

    @abstractmethod
    def integrate(
        self,
        dynamics: Dynamics,
        z: State,
        span: Span,
        save_at: Sequence[float] = (),
        observe: Any = None,
    ) -> Trajectory:
        """Follow the field from one end of the span to the other.

        Args:
            dynamics: the field.
            z: the state at the start.
            span: from where to where.
            save_at: depths along the span whose states to return.
            observe: called with every step that is taken.
        """


def checked_steps(steps: Any, name: str = "steps") -> int:
    """The number of steps, if it is one."""
    if isinstance(steps, bool) or not isinstance(steps, int) or steps < 1:
        raise ArgumentError(f"{name} is a whole number of at least 1, not {steps!r}")
    return steps


def fractions_in(positions: Sequence[float], n: int, last: int) -> tuple[float, ...]:
    """Which of the remaining positions on a grid lie in step n, as fractions of it."""
    out = []
    for position in positions:
        if position > n + 1 + 1e-9 and n + 1 < last:
            break
        fraction = position - n
        out.append(1.0 if fraction > 1 - 1e-9 else fraction)
    return tuple(out)
