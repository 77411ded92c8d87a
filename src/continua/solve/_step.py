"""One Runge-Kutta step: the only place of its arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

from ._dynamics import Dynamics, Evaluate, Side, Stage, State, Terms, combine, nonzero
from ._solver import Stats
from ._tableau import Tableau


class Scaled:
    """A tableau times the signed length of a step."""

    def __init__(self, tableau: Tableau, h: float):
        a, b = tableau.floats.a, tableau.floats.b
        self.rows: list[Terms] = [nonzero([h * value for value in row]) for row in a]
        self.weights: Terms = nonzero([h * value for value in b])
        #: the stage whose argument is the end of the step
        self.last = tableau.stages + 1 if tableau.fsal else 0


def stages(scaled: Scaled, evaluate: Sequence[Evaluate], z: State, ks: list[State]) -> State:
    """Add the slopes at further stages to `ks`; return the argument of the last one."""
    at = z
    for row, f in zip(scaled.rows[len(ks) :], evaluate, strict=False):
        at = combine(z, ks, row) if row else z
        ks.append(f(at))
    return at


def step(scaled: Scaled, evaluate: Sequence[Evaluate], z: State, ks: list[State]) -> State:
    """The end of a step from z; slopes that are missing in `ks` are added to it."""
    at = stages(scaled, evaluate, z, ks)
    return at if len(ks) == scaled.last else combine(z, ks, scaled.weights)


@dataclass
class Step:
    """A step that was taken, between two depths."""

    tableau: Tableau
    start: Any
    end: Any
    z: State  # at the start
    end_state: State
    ks: list[State]  # the slopes at its stages
    fractions: Sequence[float] = ()  # where in the step states were asked for

    @cached_property
    def h(self) -> float:
        """The signed length."""
        return float(self.end - self.start)

    def complete(self, dynamics: Dynamics, stats: Stats) -> None:
        """Evaluate the stages that only the continuous extension needs."""
        missing = stages_between(self.tableau, self.start, self.end)[len(self.ks) :]
        if missing:
            self.ks = list(self.ks)
            stages(Scaled(self.tableau, self.h), dynamics.at(missing), self.z, self.ks)
            stats.evaluations += len(missing)

    def at(self, fraction: float) -> State:
        """The state at a fraction of the step, which needs all stages."""
        weights = [self.h * w for w in self.tableau.weights(fraction)]
        return combine(self.z, self.ks, nonzero(weights))

    def saved(self, dynamics: Dynamics, stats: Stats) -> list[State]:
        """The states at `fractions`; stages that are missing are evaluated."""
        if any(fraction < 1 for fraction in self.fractions):
            self.complete(dynamics, stats)
        return [self.end_state if x >= 1 else self.at(x) for x in self.fractions]


def sides(start: Any, end: Any) -> tuple[Side, Side]:
    """The sides from which a step samples its start and its end: from inside the step."""
    return ("right", "left") if end > start else ("left", "right")


def stages_between(tableau: Tableau, start: Any, end: Any) -> list[Stage]:
    """All stages of one step."""
    first, last = sides(start, end)
    places: Sequence[Any] = tableau.c if isinstance(start, Fraction) else tableau.floats.c
    out = []
    for c in places:
        if c == 0:
            out.append(Stage(start, first))
        elif c == 1:
            out.append(Stage(end, last))
        else:
            out.append(Stage(start + (end - start) * c, "right"))
    return out
