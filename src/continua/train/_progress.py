"""How a run tells where it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Progress:
    """Where a run is: handed to whoever watches it, after each epoch and each later step.

    Attributes:
        stage: what is being done, in a word.
        done: how much of it, out of `total`.
        total: of this stage.
        note: what there is to say about it.
    """

    stage: str
    done: int
    total: int
    note: str = ""


Watch = Callable[[Progress], None]


def silent(now: Progress) -> None:
    """Nobody watches."""
