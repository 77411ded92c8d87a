"""Counting how often the fields of a model are evaluated."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn

from continua.solve import Stats
from continua.transform import blocks_if_any


class Evaluations:
    """How often the fields of a model were evaluated, as `count_evaluations` saw it.

    It goes on with backward passes of what was solved inside, also after the end.
    """

    def __init__(self) -> None:
        self._seen: list[Stats] = []

    def add(self, stats: Stats) -> None:
        """Count what a solve costs."""
        self._seen.append(stats)

    @property
    def forward(self) -> int:
        """Evaluations of all forward solves."""
        return sum(stats.evaluations for stats in self._seen)

    @property
    def backward(self) -> int:
        """Evaluations of the backward passes that have run so far."""
        return sum(s.backward.evaluations for s in self._seen if s.backward is not None)

    @property
    def solves(self) -> int:
        """How many solves there were: one per block and call, as a rule."""
        return len(self._seen)

    def __repr__(self) -> str:
        return f"Evaluations(forward={self.forward}, backward={self.backward})"


@contextmanager
def count_evaluations(model: nn.Module) -> Iterator[Evaluations]:
    """Count the evaluations of the fields of a model, forward and backward apart.

    Forward counts every call of a field that a solve makes: all stages, those of rejected steps
    too, the trial step by which an adaptive solver finds its first step length, and what an
    interpolant takes. One call is one evaluation, however large the batch. Backward counts the
    calls that the gradient makes again: the stages of the adjoint equation and the points of its
    quadrature under `Adjoint`, the repeated steps under `Checkpoint` and `Reversible`. It is zero
    under `Backprop`, which calls no field again. A graph that is run backward twice counts once.

    Args:
        model: any module; its ODE blocks are counted together, and one without any gives zero.
            Copies that are made meanwhile, by `refine` for instance, are not counted.

    Example:
        >>> import torch
        >>> import continua as ct
        >>> block = ct.ODEBlock(nn.Linear(2, 2), solver=ct.RK4(steps=3), gradient=ct.Checkpoint())
        >>> with count_evaluations(block) as count:
        ...     block(torch.ones(1, 2)).sum().backward()
        >>> count.forward, count.backward
        (12, 12)
    """
    count = Evaluations()
    found = blocks_if_any(model).values()
    for block in found:
        block.recorders.append(count.add)
    try:
        yield count
    finally:
        for block in found:
            block.recorders.remove(count.add)
