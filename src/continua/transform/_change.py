"""Smaller models of one model, by a change of basis."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, Literal, NamedTuple, Self, TypeVar

from torch import nn

from continua._errors import ModuleError
from continua.basis import Basis
from continua.block import ODEBlock
from continua.field import BasisChoice, choose_bases, copied
from continua.gradient import checked_solver

from ._batches import Batches
from ._blocks import blocks, coefficients, tie
from ._fit import fit_blocks
from ._projection import coefficients_in
from ._recalibrate import Correction, reestimate
from ._sensitivity import Sensitivity

Method = Literal["project", "interpolate", "fit"]
#: what a block may be given of its own
KEYS = ("basis", "state_basis", "steps", "solver")
#: for some blocks their arguments of `compress`, among these
Choices = Mapping[str, Mapping[str, Any]]
PER_BLOCK = "choices for some blocks go into per_block={pattern of blocks: {'basis': basis}}"
M = TypeVar("M", bound=nn.Module)


class Names(NamedTuple):
    """The names in a model: its blocks, and the tensors of all of them, aliases included."""

    blocks: list[str]
    weights: list[str]
    state: list[str]

    @classmethod
    def of(cls, model: nn.Module) -> Self:
        found = blocks(model)
        expansions = [block.expansion for block in found.values()]
        weights = [n for e in expansions for first in e.weights for n in e.names(first)]
        state = [n for e in expansions for first in e.state for n in e.names(first)]
        return cls(list(found), list(dict.fromkeys(weights)), list(dict.fromkeys(state)))


@dataclass
class Compression(Generic[M]):
    """Makes smaller models of one model, by different choices for its blocks.

    Attributes:
        model: the model; it is not changed.
        names: of its blocks and tensors.
        method: of the change of basis; a fit starts from the projection.
        batches: of inputs to fit to and to read statistics from, if there are any.
        weights: for weighted projections.
        final: the name of the map that a fit changes.
    """

    model: M
    names: Names
    method: Method
    batches: Batches | None
    weights: Sensitivity
    final: str | None

    def __post_init__(self) -> None:
        self._correct = None if self.batches is None else Correction(self.model, self.batches)

    def __call__(self, choices: Choices) -> M:
        """The smaller model, fitted and with statistics of its own if there are batches."""
        small = self.rebase(choices)
        if self.batches is None or self._correct is None:
            return small
        if self.method == "fit":
            fit_blocks(copied(self.model), small, self.batches, self.final)
        else:
            reestimate(small, self.batches)
        self._correct(small)
        return small

    def rebase(self, choices: Choices) -> M:
        """The model in other bases and steps, by the change of basis alone."""
        small, method = copied(self.model), "project" if self.method == "fit" else self.method
        for name, block in blocks(small).items():
            choice = dict.fromkeys(KEYS) | dict(choices.get(name, {}))
            bases = _choose_bases(block, choice["basis"], choice["state_basis"], self.names)
            solver = checked_solver(block.solver if choice["solver"] is None else choice["solver"])
            solver = solver if choice["steps"] is None else solver.with_steps(choice["steps"])
            same = self.batches is not None and solver == block.solver
            points = block.plan.points if same and block.plan else ()
            weights = self.weights.get(name, {})
            stacks = {
                key: (basis, coefficients_in(basis, block, key, method, weights.get(key), points))
                for key, basis in bases.items()
            }
            block.rebase(stacks, solver)
        shared = tie(coefficients(self.model), small)
        if shared and self.method == "fit":
            raise ModuleError(
                f"{shared!r} is a tensor of another block too, and method='fit' changes one block "
                "after another; use method='project'"
            )
        return small


def _choose_bases(
    block: ODEBlock, basis: BasisChoice | None, state_basis: BasisChoice | None, names: Names
) -> dict[str, Basis]:
    """The new bases of those tensors that vary with depth, as far as they are given one."""
    expansion = block.expansion
    weights = [name for name, old in expansion.weights.items() if old.size > 1]
    state = [name for name, old in expansion.state.items() if old.size > 1]
    chosen = choose_bases(
        basis,
        state_basis,
        weights,
        state,
        expansion.aliases,
        known_weights=names.weights,
        known_state=names.state,
        hint=PER_BLOCK,
    )
    return {name: chosen[name] for name in [*weights, *state] if name in chosen}
