"""Smaller models of one model, by a change of basis."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Generic, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from continua._errors import ModuleError
from continua.basis import (
    Basis,
    Constant,
    PiecewiseConstant,
    Point,
    interpolation,
    least_squares,
    projection,
    quadrature,
    sample,
)
from continua.block import ODEBlock
from continua.field import BasisChoice, choose_bases, copied, non_negative, tensor
from continua.gradient import checked_solver

from ._asked import Method
from ._batches import Batches
from ._blocks import blocks, coefficients, tie, transformed
from ._budget import Choices
from ._fit import fit_blocks
from ._recalibrate import Correction, reestimate
from ._sensitivity import Sensitivity, weighted_projection

Mappings = {"project": projection, "interpolate": interpolation}
#: what a block may be given of its own, and where
KEYS = ("basis", "state_basis", "steps", "solver")
PER_BLOCK = "choices for some blocks go into per_block={pattern of blocks: {'basis': basis}}"
M = TypeVar("M", bound=nn.Module)


class Names(NamedTuple):
    """The names in a model: its blocks, and the tensors of all of them, aliases included."""

    blocks: list[str]
    weights: list[str]
    state: list[str]


class Changes(Generic[M]):
    """The smaller models that changes of basis make of one model.

    Args:
        model: it is not changed.
        names: of its blocks and tensors.
        method: of the change of basis; a fit starts from the projection.
        batches: of inputs to fit to, and to read statistics from.
        weights: for weighted projections.
        final: which map a fit changes.
    """

    def __init__(
        self,
        model: M,
        names: Names,
        method: Method,
        batches: Batches | None,
        weights: Sensitivity | None,
        final: str | None,
    ):
        self._model, self._names, self._weights = model, names, weights
        self._method, self._final = method, final
        self._correct = None if batches is None else Correction(model, batches)

    def __call__(self, choices: Choices, batches: Batches | None) -> M:
        """The smaller model for choices for some blocks.

        Args:
            choices: by the names of blocks.
            batches: None changes bases and steps alone.
        """
        small = self._changed(choices)
        if batches is None or self._correct is None:
            return small
        if self._method == "fit":
            fit_blocks(copied(self._model), small, batches, self._final)
        else:
            reestimate(small, batches)
        self._correct(small)
        return small

    def _changed(self, choices: Choices) -> M:
        """The model in other bases and steps."""
        small, method = copied(self._model), "project" if self._method == "fit" else self._method
        for name, block in blocks(small).items():
            choice = dict.fromkeys(KEYS) | dict(choices.get(name, {}))
            targets = _targets(block, choice["basis"], choice["state_basis"], self._names)
            matter = {} if self._weights is None else self._weights[name]
            used = checked_solver(block.solver if choice["solver"] is None else choice["solver"])
            used = used if choice["steps"] is None else used.with_steps(choice["steps"])
            same = self._correct is not None and used == block.solver
            points = block.plan.points if same and block.plan else ()
            stacks = {
                key: (target, _stack(block, key, target, method, matter.get(key), points))
                for key, target in targets.items()
            }
            block.rebase(stacks, used)
        shared = tie(coefficients(self._model), small)
        if shared and self._method == "fit":
            raise ModuleError(
                f"{shared!r} is a tensor of another block too, and method='fit' changes one block "
                "after another; use method='project'"
            )
        return small


def _targets(
    block: ODEBlock, basis: BasisChoice | None, state_basis: BasisChoice | None, names: Names
) -> dict[str, Basis]:
    """The new basis of each tensor that gets one: of those that vary with depth."""
    expansion = block.expansion
    weights = [name for name, old in expansion.weights.items() if old.size > 1]
    state = [name for name, old in expansion.state.items() if old.size > 1]
    known = {"known_weights": names.weights, "known_state": names.state}
    chosen = choose_bases(
        basis, state_basis, weights, state, expansion.aliases, hint=PER_BLOCK, **known
    )
    return {name: chosen[name] for name in [*weights, *state] if name in chosen}


def _stack(
    block: ODEBlock,
    name: str,
    target: Basis,
    method: str,
    weight: Tensor | None,
    points: Sequence[Point],
) -> Tensor:
    """The coefficients of a tensor in another basis.

    Args:
        points: where the field is evaluated, if this is the same before and after.
    """
    source, stack = block.expansion.bases[name], tensor(block.field, name)
    if weight is not None and method == "project":
        return weighted_projection(source, target, stack, weight)
    mapping = Mappings[method](source, target)
    buckets = isinstance(source, PiecewiseConstant) and isinstance(target, PiecewiseConstant)
    if method == "project" and buckets and source.size % target.size:
        # No evaluation sees that cells overlap in part: what is read counts.
        mapping = _read_alike(source, target, points, mapping)
    new = transformed(mapping, stack)
    if block.expansion.constraints.get(name) is non_negative:
        return limited(source, stack, target, new)
    return new


def _read_alike(source: Basis, target: Basis, points: Sequence[Point], otherwise: Tensor) -> Tensor:
    """The projection in the mean square over some points; another one for what none reads."""
    if not points:
        return otherwise
    there = sample(target, points)
    found = least_squares(there, rcond=1e-7) @ sample(source, points)
    return found.where(there.any(0)[:, None], otherwise)


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
