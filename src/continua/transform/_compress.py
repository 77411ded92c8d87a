"""Fewer basis functions and steps, without data."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypeVar, get_args

import torch
from torch import Tensor, nn

from continua._errors import ArgumentError
from continua.basis import Basis, Constant, Point, interpolation, projection, quadrature, sample
from continua.block import ODEBlock
from continua.field import BasisChoice, choose, copied, non_negative, tensor
from continua.solve import Solver

from ._batches import Batches
from ._blocks import blocks, transformed
from ._fit import Stacks, fit_blocks
from ._recalibrate import reestimate

Method = Literal["project", "interpolate", "fit"]
Mappings = {"project": projection, "interpolate": interpolation}
M = TypeVar("M", bound=nn.Module)
#: where the patterns go that `ODEBlock` takes
TENSORS = "patterns of tensors go one level down: {'*': {pattern: basis}}"


def compress(
    model: M,
    basis: BasisChoice | Mapping[str, BasisChoice] | None = None,
    *,
    steps: int | Mapping[str, int] | None = None,
    solver: Solver | Mapping[str, Solver] | None = None,
    state_basis: BasisChoice | Mapping[str, BasisChoice] | None = None,
    method: Method = "project",
    calibrate: Iterable[Any] | None = None,
) -> M:
    r"""A smaller model, by a change of basis: no retraining, no data.

    Every weight and every piece of state is a function of depth; it is replaced by its best
    approximation in the new basis (`projection`), or by the function that agrees with it at the
    new basis' nodes (`interpolation`). Solver and steps are free to change with it. Tensors that
    are constant in depth already stay as they are.

    A running variance that its projection would push below the smallest value it has at any
    depth is drawn towards its mean over depth until it no longer is, so that it stays positive.

    Each choice is one value for all blocks, or a mapping from patterns of block names to values.

    Args:
        model: any module that contains ODE blocks; it is not changed.
        basis: the new basis; for a block also a mapping from patterns of tensor names to bases.
            None leaves the bases as they are.
        steps: the new number of steps.
        solver: the new solver; `steps` then overrides its number of steps.
        state_basis: the new basis of the state; None takes `basis`.
        method: `"project"`, `"interpolate"`, or `"fit"`: then the last linear or convolutional map
            of each field is fitted, by least squares, so that the smaller network follows the
            states of the larger one; one batch of `calibrate` in four is held back to choose by.
            This is for layers that were trained apart, as those that `convert` takes.
        calibrate: inputs without labels, in batches, from which the batch-norm statistics are read
            again at the end (`recalibrate`). A few hundred are enough.

    Example:
        >>> import continua as ct
        >>> model = ct.ODEBlock(nn.Linear(2, 2), ct.PiecewiseConstant(8), ct.Euler(steps=8))
        >>> ct.compress(model, ct.PiecewiseConstant(4), steps=4)
        ODEBlock(
          basis=PiecewiseConstant(4)
          solver=Euler(steps=4), span=(0, 1)
          parameters=24, state=0
          (field): Linear(in_features=2, out_features=2, bias=True)
        )
    """
    if method not in get_args(Method):
        raise ArgumentError(f"method is 'project', 'interpolate' or 'fit', not {method!r}")
    if method == "fit" and calibrate is None:
        raise ArgumentError("method='fit' needs inputs to fit to: calibrate=[x, ...]")
    names = list(blocks(model))
    bases: dict[str, BasisChoice | None] = choose(basis, names, "block", TENSORS)
    state_bases: dict[str, BasisChoice | None] = choose(state_basis, names, "block", TENSORS)
    solvers = choose(solver, names, "block")
    step_counts = choose(steps, names, "block")
    small = copied(model)
    # One batch is held back, and one must be left.
    batches = None if calibrate is None else Batches(small, calibrate, 2 if method == "fit" else 1)
    starts: dict[str, list[Stacks]] = {}
    for name, block in blocks(small).items():
        targets = _targets(block, bases[name], state_bases[name])
        starts[name] = [
            {key: (target, _changed(block, key, target, way)) for key, target in targets.items()}
            for way in ((method,) if method != "fit" else Mappings if targets else ("project",))
        ]
        chosen = block.solver if solvers[name] is None else solvers[name]
        if not isinstance(chosen, Solver):
            raise ArgumentError(
                f"solver is an instance such as continua.RK4(steps=8), not {chosen!r}"
            )
        count = step_counts[name]
        block.rebase(starts[name][0], chosen if count is None else chosen.with_steps(count))
    if batches is not None and method == "fit":
        fit_blocks(copied(model), small, starts, batches)
    elif batches is not None:
        reestimate(small, batches)
    return small


def _targets(
    block: ODEBlock, basis: BasisChoice | None, state_basis: BasisChoice | None
) -> dict[str, Basis]:
    """The new basis of each tensor that gets one."""

    def varying(bases: Mapping[str, Basis]) -> list[str]:
        return [name for name, basis in bases.items() if basis.size > 1]

    weights, state = varying(block.expansion.weights), varying(block.expansion.state)
    chosen: dict[str, Basis] = {}
    if state_basis is None:
        if basis is not None:
            chosen = choose(basis, [*weights, *state], "tensor")
    else:
        if basis is not None:
            chosen = choose(basis, weights, "tensor")
        chosen |= choose(state_basis, state, "buffer")
    for name, target in chosen.items():
        if not isinstance(target, Basis):
            raise ArgumentError(f"{name!r} was given {target!r}, which is not a basis")
    return chosen


def _changed(block: ODEBlock, name: str, target: Basis, method: str) -> Tensor:
    source = block.expansion.bases[name]
    stack = tensor(block.field, name)
    new = transformed(Mappings[method](source, target), stack)
    if block.expansion.constraints.get(name) is non_negative:
        return limited(source, stack, target, new)
    return new


def limited(source: Basis, old: Tensor, target: Basis, new: Tensor) -> Tensor:
    r"""Coefficients whose function nowhere falls below the smallest value of the old one.

    The limiter of Zhang and Shu (2010), per scalar: with the mean m of the old function over
    depth, its minimum, and the minimum of the new one,

    .. math:: \tilde\sigma(s) = m + t\,(\sigma(s) - m), \qquad
              t = \min\Big(1, \frac{m - \min\sigma_{old}}{m - \min\sigma_{new}}\Big)

    Bases that do not contain the constants are left as they are.
    """
    ones = projection(Constant(), target)  # [K, 1]
    s, w = quadrature(source, target)
    if float((target(s) @ ones - 1).abs().max()) > 1e-9:
        return new
    points = _dense(source, target)
    old64 = old.detach().cpu().double().reshape(source.size, -1)
    new64 = new.detach().cpu().double().reshape(target.size, -1)
    mean = w @ (source(s) @ old64).clamp(min=0)  # [n]
    floor = (sample(source, points) @ old64).clamp(min=0).amin(0)
    lowest = (sample(target, points) @ new64).amin(0)
    low = lowest < floor
    t = torch.where(low, (mean - floor) / (mean - lowest).clamp(min=1e-300), 1.0)
    centre = ones * mean
    kept = torch.where(low, centre + t * (new64 - centre), new64)
    return kept.reshape(new.shape).to(new)


def _dense(*bases: Basis) -> list[Point]:
    """Points that see every cell of the bases from end to end."""
    ends = sorted({b for basis in bases for b in basis.breakpoints})
    inner = 4 * max(basis.degree_on(1 / (len(ends) - 1)) for basis in bases) + 1
    points = []
    for a, b in itertools.pairwise(ends):
        points.append(Point(a, "right"))
        points += [Point(a + (b - a) * i / inner) for i in range(1, inner)]
        points.append(Point(b, "left"))
    return points
