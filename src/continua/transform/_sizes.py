"""The sizes of an elastic model: what each means, and whether they nest."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn

from continua._errors import ArgumentError
from continua._values import whole_number
from continua.basis import Basis, projection, quadrature
from continua.block import ODEBlock
from continua.field import Expansion

from ._blocks import blocks

#: a number of basis functions, or arguments of `compress`
Choice = int | Mapping[str, Any]
#: those arguments that are a change of basis and of steps
ARGUMENTS = ("basis", "steps", "solver", "state_basis", "method", "per_block")


def choices(model: nn.Module, sizes: Sequence[Choice]) -> list[dict[str, Any]]:
    """The arguments of `compress` for each size."""
    blocks(model)
    return [size_arguments(model, size) for size in check_sizes(sizes)]


def check_sizes(sizes: Sequence[Choice]) -> Sequence[Choice]:
    """The sizes, if they are a list that has any."""
    if isinstance(sizes, str | Mapping) or not isinstance(sizes, Sequence):
        raise ArgumentError(f"sizes are a list such as [4, 2, 1], not {sizes!r}")
    if not sizes:
        raise ArgumentError("sizes are empty; begin with the model's own, as in [4, 2, 1]")
    return sizes


def size_arguments(model: nn.Module, size: Choice) -> dict[str, Any]:
    """The arguments of `compress` for one size."""
    if isinstance(size, Mapping):
        unknown = sorted(map(str, size.keys() - set(ARGUMENTS)))
        if unknown:
            raise ArgumentError(
                f"a size has {', '.join(ARGUMENTS)}, not {unknown[0]!r}; other arguments of "
                "compress look at data"
            )
        return {"per_block": {}} | dict(size)  # {} is the model as it is
    size = whole_number("a size without arguments of compress", size)
    full = own_size(model)
    if full is None:
        raise ArgumentError(
            f"the model's weights have bases of different sizes, so {size} says too little; "
            "give dictionaries such as {'basis': ..., 'steps': ...}"
        )
    if size > full:
        raise ArgumentError(f"size {size} is larger than the model, which has {full} functions")
    own = {
        name: {
            "basis": _resized(block.expansion, block.expansion.weights, size),
            "state_basis": _resized(block.expansion, block.expansion.state, size),
            "solver": _fewer_steps(block, size, full),
        }
        for name, block in blocks(model).items()
    }
    return {"per_block": own}


def own_size(model: nn.Module) -> int | None:
    """The number of functions of every weight that varies with depth; None if they differ."""
    sizes = {
        basis.size
        for block in blocks(model).values()
        for basis in block.expansion.weights.values()
        if basis.size > 1
    }
    return None if len(sizes) > 1 else max(sizes, default=1)


def _resized(expansion: Expansion, bases: Mapping[str, Basis], size: int) -> dict[str, Basis]:
    """The new bases of what varies with depth, under all names of each tensor."""
    return {
        name: basis.resized(min(size, basis.size))
        for first, basis in bases.items()
        if basis.size > 1
        for name in expansion.names(first)
    }


def _fewer_steps(block: ODEBlock, size: int, full: int) -> Any:
    """The block's solver with steps in proportion; one that chooses its own steps stays."""
    steps = block.solver.steps
    if steps is None:
        return block.solver
    return block.solver.with_steps(max(round(steps * size / full), 1))


def check_nested(models: Sequence[nn.Module], sizes: Sequence[Choice]) -> None:
    """Refuse sizes of which the first is not the model, or one is not contained in the one before.

    Args:
        models: the model, and what `compress` made of it for each size.
        sizes: as the user wrote them.
    """
    model, first = models[0], models[1]
    for name, block in blocks(model).items():
        other = blocks(first)[name]
        if block.expansion.bases != other.expansion.bases or block.solver != other.solver:
            full = own_size(model)
            remedy = "{}" if full is None else f"{full} or {{}}"
            raise ArgumentError(
                f"sizes begin with the model's own, {remedy}, not with {sizes[0]!r}"
            )
    for i, (one, two) in enumerate(itertools.pairwise(models[1:])):
        same = True
        for name, block in blocks(one).items():
            other = blocks(two)[name]
            same = same and block.solver == other.solver
            for key, basis in block.expansion.weights.items():
                target = other.expansion.weights[key]
                same = same and basis == target
                if not contains(basis, target):
                    raise ArgumentError(
                        f"sizes nest, and {sizes[i + 1]!r} after {sizes[i]!r} does not: "
                        f"{target!r} is not contained in {basis!r}"
                    )
        if same:
            raise ArgumentError(f"sizes {sizes[i]!r} and {sizes[i + 1]!r} are the same model")


def contains(larger: Basis, smaller: Basis) -> bool:
    """Whether every function of the smaller basis is one of the larger.

    Example:
        >>> from continua import PiecewiseConstant
        >>> contains(PiecewiseConstant(4), PiecewiseConstant(2))
        True
        >>> contains(PiecewiseConstant(4), PiecewiseConstant(3))
        False
    """
    s, w = quadrature(larger, smaller)
    root, wanted = w.sqrt()[:, None], smaller(s)
    missed = root * (wanted - larger(s) @ projection(smaller, larger))
    return float(missed.norm()) <= 1e-6 * float((root * wanted).norm())
