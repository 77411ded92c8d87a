"""One Runge-Kutta step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from ._dynamics import Dynamics, Evaluate, Side, Stage, State, combine
from ._solution import Stats
from ._tableau import Tableau


@dataclass
class Step:
    """A step that was taken.

    Attributes:
        tableau: of the method.
        start: the depth at which it starts.
        end: the depth at which it ends.
        z: the state at its start.
        end_state: the state at its end.
        ks: the stages.
        fractions: where in the step states were asked for.
    """

    tableau: Tableau
    start: Any
    end: Any
    z: State
    end_state: State
    ks: list[State]
    fractions: Sequence[float] = ()

    @property
    def h(self) -> float:
        """The signed length."""
        return float(self.end - self.start)

    def complete(self, dynamics: Dynamics, stats: Stats | None = None) -> None:
        """Evaluate the stages that only the continuous extension needs."""
        missing = stages_between(self.tableau, self.start, self.end)[len(self.ks) :]
        if missing:
            self.ks = further_stages(
                self.tableau, dynamics.at(missing), self.z, self.h, list(self.ks)
            )
            if stats is not None:
                stats.evaluations += len(missing)

    def at(self, fraction: float) -> State:
        """The state at a fraction of the step; all stages must be there."""
        return combine(self.z, self.ks, [self.h * w for w in self.tableau.weights(fraction)])


Observer = Callable[[Step], None]


def scaled(tableau: Tableau, h: float) -> tuple[list[list[float]], list[float]]:
    """The rows of a and the weights b, times the step."""
    a, b, _, _ = tableau.floats
    return [[h * value for value in row] for row in a], [h * value for value in b]


def sides(start: Any, end: Any) -> tuple[Side, Side]:
    """From which side a step samples its start and its end: from inside."""
    return ("right", "left") if end > start else ("left", "right")


def stages_between(tableau: Tableau, start: Any, end: Any) -> list[Stage]:
    """The stages of one step, all of them."""
    first, last = sides(start, end)
    places: Sequence[Any] = tableau.c if isinstance(start, Fraction) else tableau.floats[2]
    out = []
    for c in places:
        if c == 0:
            out.append(Stage(start, first))
        elif c == 1:
            out.append(Stage(end, last))
        else:
            out.append(Stage(start + (end - start) * c, "right"))
    return out


def further_stages(
    tableau: Tableau, evaluate: Sequence[Evaluate], z: State, h: float, ks: list[State]
) -> list[State]:
    """The stages so far, and one more for each evaluation given."""
    for row, f in zip(tableau.floats[0][len(ks) :], evaluate, strict=False):
        ks.append(f(combine(z, ks, [h * value for value in row])))
    return ks
