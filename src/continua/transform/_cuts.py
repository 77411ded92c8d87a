"""The ways to make one block of a model smaller, with what each saves and its error."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import nn

from continua._errors import ArgumentError, SolveError
from continua.basis import Basis
from continua.block import ODEBlock
from continua.field import copied
from continua.solve import RK4, RK38, Euler, Heun, Midpoint, Solver

from ._batches import Batches, call, comparable
from ._blocks import blocks, new_bases
from ._change import Choices, Compression
from ._layers import LayerBlock
from ._size import size
from ._stack import as_blocks

Costs = tuple[float, ...]
#: explicit methods that may stand for each other
EXPLICIT = (Euler, Midpoint, Heun, RK4, RK38)
#: about how many members of a family are tried
MOST = 8
#: how often a forward is timed
ROUNDS = 7


class Cut(NamedTuple):
    """A way to make some blocks smaller.

    Attributes:
        choices: the arguments of `compress` for these blocks.
        costs: of the model with this cut, less those of the model itself.
        error: of its outputs, squared and relative; for several blocks the sum of theirs.
    """

    choices: Choices
    costs: Costs
    error: float


def list_cuts(
    compression: Compression[Any], costs: Callable[[nn.Module], Costs], *, solvers: bool
) -> list[list[Cut]]:
    """The cuts of each block with their costs, that which changes nothing first.

    Their errors are not known yet. With `solvers`, evaluations are cut as well.
    """
    own = costs(compression.model)
    found = []
    for name, block in blocks(compression.model).items():
        cuts = []
        for choice in smaller_choices(block, solvers):
            now = costs(compression.rebase({name: choice}))
            saved = tuple(a - b for a, b in zip(now, own, strict=True))
            cuts.append(Cut({name: choice}, saved, 0.0))
        found.append(cuts)
    return found


def measure_errors(
    compression: Compression[Any], batches: Batches, cuts: Sequence[Sequence[Cut]]
) -> list[list[Cut]]:
    r"""The cuts with the error of the outputs ŷ of the model with each cut alone.

    .. math:: e = \frac{\sum_x \|\hat y(x) - y(x)\|^2}{\sum_x \|y(x)\|^2}

    The outputs y are those of the uncut model. Cuts with which a solve fails are left out.
    """
    teacher = copied(compression.model).eval()
    found: list[list[Cut]] = []
    for unchanged, *others in cuts:
        found.append([unchanged])
        for cut in others:
            try:
                error = _output_error(teacher, compression(cut.choices), batches)
            except SolveError:
                continue
            if math.isfinite(error):
                found[-1].append(cut._replace(error=error))
    return found


@torch.no_grad()
def _output_error(teacher: nn.Module, small: nn.Module, batches: Batches) -> float:
    """The squared error of the outputs of a model, relative to those of another."""
    small.eval()
    error = norm = 0.0
    for batch in batches:
        target, found = (comparable(call(model, batch)) for model in (teacher, small))
        for a, b in zip(found, target, strict=True):
            error += float((a - b).abs().square().sum())
            norm += float(b.abs().square().sum())
    return error / (norm or 1.0)


# -- costs


def cost_function(
    model: nn.Module, batches: Batches, measures: Sequence[str]
) -> Callable[[nn.Module], Costs]:
    """What a smaller one of a model costs, in some of parameters, bytes, evaluations and latency.

    The latency of a block is taken to be in proportion to its evaluations.
    """
    own = {name: block.solver.evaluations(block.span) for name, block in blocks(model).items()}
    rest, seconds = 0.0, dict[str, float]()
    if "latency" in measures:
        rest, seconds = _time_blocks(copied(model).eval(), batches)

    def costs(one: nn.Module) -> Costs:
        counted, latency = size(one), rest
        for name, spent in seconds.items():
            block = blocks(one)[name]
            latency += spent * (block.solver.evaluations(block.span) or 0) / (own[name] or 1)
        known = vars(counted) | {"latency": latency}
        return tuple(float(known[measure] or 0) for measure in measures)

    return costs


@torch.inference_mode()
def _time_blocks(model: nn.Module, batches: Batches) -> tuple[float, dict[str, float]]:
    """The seconds of one forward of the first batch: of each block, and of all else."""
    batch, found = next(iter(batches)), blocks(model)
    spent = dict.fromkeys(found, 0.0)
    best, rest = dict.fromkeys(found, math.inf), math.inf

    def clock() -> float:
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        return time.perf_counter()

    def add(name: str, sign: int) -> None:
        spent[name] += sign * clock()

    with contextlib.ExitStack() as hooks:
        for name, block in found.items():
            before = block.register_forward_pre_hook(lambda _m, _a, name=name: add(name, -1))
            after = block.register_forward_hook(lambda _m, _a, _o, name=name: add(name, 1))
            hooks.enter_context(before)
            hooks.enter_context(after)
        hooks.enter_context(as_blocks(model))
        call(model, batch)  # warms up
        for _ in range(ROUNDS):
            spent |= dict.fromkeys(found, 0.0)
            started = clock()
            call(model, batch)
            rest = min(rest, clock() - started - sum(spent.values()))
            best = {name: min(best[name], spent[name]) for name in found}
    return rest, best


# -- what a block can be cut to: fewer functions, fewer evaluations


def smaller_choices(block: ODEBlock, solvers: bool) -> list[dict[str, Any]]:
    """Choices of `compress` for one block, that which changes nothing first.

    The weights go to smaller members of their family. Where they have several bases, all of these
    are halved again and again instead. State keeps its basis as far as the evaluations can tell
    its functions apart: with re-estimated statistics this costs little and keeps much. With
    `solvers`, evaluations are cut as well.
    """
    expansion = block.expansion
    found: list[dict[str, Any]] = [{}]
    layers = isinstance(block, LayerBlock)
    for solver in _solvers(block) if solvers and not layers else [block.solver]:
        for level in _levels([b for b in expansion.weights.values() if b.size > 1]):
            most = max((new.size for new in level.values()), default=1)
            if layers:  # one for each function, so that they can be plain layers again
                solver = Euler(steps=most)
            count = solver.evaluations(block.span)
            same = solver == block.solver
            if same and all(old == new for old, new in level.items()):
                continue
            if not same and count is not None and most > count:
                continue  # functions that no evaluation can tell apart
            bases = new_bases(expansion, expansion.weights, level.__getitem__)
            state = new_bases(expansion, expansion.state, partial(_readable, count))
            found.append({"basis": bases, "state_basis": state, "solver": solver})
    return found


def _levels(bases: list[Basis]) -> list[dict[Basis, Basis]]:
    """The new basis of each old one, from the old ones down."""
    bases = list(dict.fromkeys(bases))
    if len(bases) == 1:
        return [{bases[0]: member} for member in members(bases[0])]
    chains = {basis: _halves(basis) for basis in bases}
    depth = max(map(len, chains.values()), default=1)
    return [{b: chain[min(i, len(chain) - 1)] for b, chain in chains.items()} for i in range(depth)]


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
    for count in range(basis.size, 0, -math.ceil(basis.size / MOST)):
        with contextlib.suppress(ArgumentError):  # no such member
            found.setdefault(count, basis.resized(count))
    return [found[count] for count in sorted(found, reverse=True)]


def _halves(basis: Basis) -> list[Basis]:
    found = [basis]
    while (half := found[-1].halved()).size < found[-1].size:
        found.append(half)
    return found


def _readable(count: int | None, basis: Basis) -> Basis:
    """The largest member with no more functions than evaluations."""
    if count is None:
        return basis
    every = members(basis)
    return next((member for member in every if member.size <= count), every[-1])


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
