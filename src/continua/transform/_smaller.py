"""What a block can be cut to: fewer functions, fewer evaluations."""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Mapping
from typing import Any

from continua._errors import ArgumentError
from continua.basis import Basis
from continua.block import ODEBlock
from continua.solve import RK4, RK38, Euler, Heun, Midpoint, Solver

from ._layers import LayerBlock

#: explicit methods that may stand for each other
EXPLICIT = (Euler, Midpoint, Heun, RK4, RK38)
#: about how many members of a family are tried
MOST = 8


def smaller_choices(block: ODEBlock, solvers: bool) -> list[dict[str, Any]]:
    """Choices of `compress` for one block, that which changes nothing first.

    The weights go to smaller members of their family. Where they have several bases, all of these
    are halved again and again instead. State keeps its basis as far as
    the evaluations can tell its functions apart: with re-estimated statistics this costs
    little and keeps much.

    Args:
        block: which is not changed.
        solvers: whether to take fewer evaluations too.
    """
    expansion = block.expansion
    varying = list(dict.fromkeys(b for b in expansion.weights.values() if b.size > 1))
    found: list[dict[str, Any]] = [{}]
    layers = isinstance(block, LayerBlock)
    for solver in _solvers(block) if solvers and not layers else [block.solver]:
        for level in _levels(varying):
            most = max((new.size for new in level.values()), default=1)
            if layers:  # one for each function, so that they can be plain layers again
                solver = Euler(steps=most)
            count = solver.evaluations(block.span)
            same = solver == block.solver
            if same and all(old == new for old, new in level.items()):
                continue
            if not same and count is not None and most > count:
                continue  # functions that no evaluation can tell apart
            bases = {
                name: level[basis]
                for first, basis in expansion.weights.items()
                if basis.size > 1
                for name in expansion.names(first)
            }
            state = {
                name: _readable(basis, count)
                for first, basis in expansion.state.items()
                if basis.size > 1
                for name in expansion.names(first)
            }
            found.append({"basis": bases, "state_basis": state, "solver": solver})
    return found


def _levels(bases: list[Basis]) -> list[Mapping[Basis, Basis]]:
    """The new basis of each old one, from the old ones down."""
    if len(bases) == 1:
        return [{bases[0]: member} for member in members(bases[0])]
    chains = [_halves(basis) for basis in bases]
    rows = itertools.zip_longest(*chains)
    last = [chain[-1] for chain in chains]
    return [
        dict(zip(bases, (new or end for new, end in zip(row, last, strict=True)), strict=True))
        for row in rows
    ] or [{}]


def members(basis: Basis) -> list[Basis]:
    """The smaller members of a basis' family, itself first, the smallest last.

    All up to eight functions; of larger bases about eight, and what halving gives.

    Example:
        >>> from continua import Fourier, PiecewiseConstant
        >>> [member.size for member in members(PiecewiseConstant(6))]
        [6, 5, 4, 3, 2, 1]
        >>> [member.size for member in members(PiecewiseConstant(32))]
        [32, 28, 24, 20, 16, 12, 8, 4, 2, 1]
        >>> [member.size for member in members(Fourier(2))]  # no even sizes
        [5, 3, 1]
    """
    found = {member.size: member for member in _halves(basis)}
    for size in range(basis.size, 0, -math.ceil(basis.size / MOST)):
        with contextlib.suppress(ArgumentError):  # no such member
            found.setdefault(size, basis.resized(size))
    return [found[size] for size in sorted(found, reverse=True)]


def _halves(basis: Basis) -> list[Basis]:
    found = [basis]
    while (half := found[-1].halved()).size < found[-1].size:
        found.append(half)
    return found


def _readable(basis: Basis, count: int | None) -> Basis:
    """The largest member with no more functions than evaluations."""
    if count is None or basis.size <= count:
        return basis
    fitting = [member for member in members(basis) if member.size <= count]
    return fitting[0] if fitting else members(basis)[-1]


def _solvers(block: ODEBlock) -> list[Solver]:
    """The block's solver, and cheaper ones: half the evaluations again and again."""
    own, whole = block.solver, block.solver.evaluations(block.span)
    if own.steps is None or whole is None:
        raise ArgumentError(
            f"{own!r} chooses its own steps, and a budget of evaluations or latency needs a fixed "
            "grid; compress with steps= or another solver first"
        )
    found: dict[Solver, None] = {own: None}
    for i in range(1, own.steps.bit_length()):
        found[own.with_steps(own.steps >> i)] = None
    if type(own) in EXPLICIT:
        for i in range(whole.bit_length()):
            found[Euler(steps=whole >> i)] = None
            found[Midpoint(steps=max(whole >> i + 1, 1))] = None
    return [own, *(s for s in found if (s.evaluations(block.span) or 0) < whole)]
