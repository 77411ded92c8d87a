"""Models that change their size while they are trained."""

from __future__ import annotations

from torch import nn

from continua.basis import Basis
from continua.block import ODEBlock
from continua.transform import blocks, compress


def halved(model: nn.Module) -> nn.Module:
    """The model with half the basis functions and half the steps, by projection."""
    bases, states = half_bases(model)
    solvers = {}
    for name, block in blocks(model).items():
        steps = block.solver.config().get("steps")
        solvers[name] = (
            block.solver if steps is None else block.solver.with_steps(max(steps // 2, 1))
        )
    return compress(model, bases, state_basis=states, solver=solvers)


def half_bases(
    model: nn.Module,
) -> tuple[dict[str, dict[str, Basis]], dict[str, dict[str, Basis]]]:
    """Half of the basis of every weight, and of every piece of state, by block and name."""
    expansions = {name: block.expansion for name, block in blocks(model).items()}
    return (
        {name: _halves(expansion.weights) for name, expansion in expansions.items()},
        {name: _halves(expansion.state) for name, expansion in expansions.items()},
    )


def _halves(bases: dict[str, Basis]) -> dict[str, Basis]:
    """Half of each; what does not vary with depth cannot vary less."""
    return {name: basis.halved() for name, basis in bases.items() if basis.size > 1}


def functions(model: nn.Module) -> int | None:
    """The largest basis of the model; None without blocks."""
    sizes = [
        basis.size
        for module in model.modules()
        if isinstance(module, ODEBlock)
        for basis in module.expansion.weights.values()
    ]
    return max(sizes, default=None)
