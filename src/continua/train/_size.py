"""Models that change their size while they are trained, or have several sizes."""

from __future__ import annotations

from typing import Any

from torch import nn

from continua._errors import ArgumentError
from continua.basis import Basis
from continua.field import Expansion
from continua.transform import Elastic, blocks, blocks_if_any, compress, refine

from ._config import Training


def halved(model: nn.Module) -> nn.Module:
    """The model with half the basis functions and half the steps, by projection."""
    bases, states = half_bases(model)
    halves: dict[str, dict[str, Any]] = {}
    for name, block in blocks(model).items():
        halves[name] = {"basis": bases[name], "state_basis": states[name]}
        if block.solver.steps is not None:
            halves[name]["steps"] = max(block.solver.steps // 2, 1)
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
    found = blocks_if_any(model).values()
    sizes = [basis.size for block in found for basis in block.expansion.weights.values()]
    return max(sizes, default=None)


class Sized(nn.Module):
    """An elastic model at one of its sizes, as a task calls it."""

    def __init__(self, model: nn.Module, size: Any):
        super().__init__()
        self.model, self.size = model, size
        self.training = model.training

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The outputs of this size."""
        return self.model(*args, size=self.size, **kwargs)


def make_elastic(model: nn.Module, training: Training) -> nn.Module:
    """The model with those sizes of the training that it has; the model itself without sizes."""
    if not training.elastic:
        return model
    final, sizes = model, [functions(model)]
    for _ in training.refine_epochs:
        final = refine(final)
        sizes.append(functions(final))
    for size in sizes:
        if size not in training.elastic:
            raise ArgumentError(
                f"elastic={training.elastic} lacks {size}, which the model has in the course of "
                "the training"
            )
    if max(training.elastic) > max(filter(None, sizes)):
        raise ArgumentError(
            f"elastic={training.elastic} has {max(training.elastic)}, but the model ends with "
            f"{sizes[-1]} functions"
        )
    Elastic(final, list(training.elastic))  # an error, before any work, if sizes do not nest
    return Elastic(model, [n for n in training.elastic if n <= (sizes[0] or 0)])


def plain(model: nn.Module) -> nn.Module:
    """The full size of an elastic model; any other model itself."""
    return model.model if isinstance(model, Elastic) else model
