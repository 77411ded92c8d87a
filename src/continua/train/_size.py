"""Models that change their size while they are trained."""

from __future__ import annotations

from typing import Any

from torch import nn

from continua.basis import Basis
from continua.block import ODEBlock
from continua.field import Expansion
from continua.transform import blocks, compress


def halved(model: nn.Module) -> nn.Module:
    """The model with half the basis functions and half the steps, by projection."""
    bases, states = half_bases(model)
    halves: dict[str, dict[str, Any]] = {}
    for name, block in blocks(model).items():
        steps = block.solver.steps
        halves[name] = {
            "basis": bases[name],
            "state_basis": states[name],
            "steps": None if steps is None else max(steps // 2, 1),
        }
    return compress(model, per_block=halves)


def half_bases(
    model: nn.Module,
) -> tuple[dict[str, dict[str, Basis]], dict[str, dict[str, Basis]]]:
    """Half of the basis of every weight, and of every piece of state, by block and name."""
    expansions = {name: block.expansion for name, block in blocks(model).items()}
    return (
        {name: _halves(expansion, expansion.weights) for name, expansion in expansions.items()},
        {name: _halves(expansion, expansion.state) for name, expansion in expansions.items()},
    )


def _halves(expansion: Expansion, bases: dict[str, Basis]) -> dict[str, Basis]:
    """Half of each; what does not vary with depth cannot vary less."""
    return {
        name: basis.halved()
        for first, basis in bases.items()
        if basis.size > 1
        for name in expansion.names(first)
    }


def functions(model: nn.Module) -> int | None:
    """The largest basis of the model; None without blocks."""
    sizes = [
        basis.size
        for module in model.modules()
        if isinstance(module, ODEBlock)
        for basis in module.expansion.weights.values()
    ]
    return max(sizes, default=None)
