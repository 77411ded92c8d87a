"""Counting how often the fields of a model are evaluated."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn

from continua.solve import Stats
from continua.transform import blocks_if_any


class Evaluations:
    """How often the fields of a model were evaluated inside `count_evaluations`.

    Backward passes of solves inside count also after the end.
    """

    def __init__(self) -> None:
        self._stats: list[Stats] = []

    def add(self, stats: Stats) -> None:
        """Count a solve."""
        self._stats.append(stats)

    @property
    def forward(self) -> int:
        """Evaluations of all forward solves."""
        return sum(stats.evaluations for stats in self._stats)

    @property
    def backward(self) -> int:
        """Evaluations of the backward passes that have run so far."""
        return sum(s.backward.evaluations for s in self._stats if s.backward is not None)

    @property
    def solves(self) -> int:
        """How many solves there were: one per block and call, as a rule."""
        return len(self._stats)

    def __repr__(self) -> str:
        return f"Evaluations(forward={self.forward}, backward={self.backward})"


@contextmanager
def count_evaluations(model: nn.Module) -> Iterator[Evaluations]:
    """Count the evaluations of the fields of a model, those of forward and backward separately.

    Forward counts every call of a field that a solve makes: all stages, those of rejected steps
    too, the trial step by which an adaptive solver finds its first step size, and those of an
    interpolant. One call is one evaluation, however large the batch. Backward counts the
    calls that the gradient makes again: the stages of the adjoint equation and the points of its
    quadrature under `Adjoint`, the repeated steps under `Checkpoint` and `Reversible`. It is zero
    under `Backprop`, which calls no field again. A graph that is run backward twice counts once.

    Args:
        model: any module; its ODE blocks are counted together, and a module without blocks gives
            zero. Copies that are made inside, by `refine` for instance, are not counted.

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
    blocks = blocks_if_any(model).values()
    for block in blocks:
        # A method: copies of the block get a copy of the count.
        block.recorders.append(count.add)
    try:
        yield count
    finally:
        for block in blocks:
            block.recorders.remove(count.add)
