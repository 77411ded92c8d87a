"""The sizes of an elastic model: what each means, and whether they nest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from torch import nn

from continua._errors import ArgumentError
from continua._values import whole_number
from continua.basis import Basis, projection, quadrature

from ._blocks import blocks, new_bases

#: a number of basis functions, or arguments of `compress`
Choice = int | Mapping[str, Any]
#: those arguments that are a change of basis and of steps
ARGUMENTS = ("basis", "steps", "solver", "state_basis", "method", "per_block")


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

    def resized(basis: Basis) -> Basis:
        return basis.resized(min(size, basis.size))

    per_block = {}
    for name, block in blocks(model).items():
        expansion, solver = block.expansion, block.solver
        if solver.steps is not None:  # in proportion
            solver = solver.with_steps(max(round(solver.steps * size / full), 1))
        per_block[name] = {
            "basis": new_bases(expansion, expansion.weights, resized),
            "state_basis": new_bases(expansion, expansion.state, resized),
            "solver": solver,
        }
    return {"per_block": per_block}


def own_size(model: nn.Module) -> int | None:
    """The number of functions of every weight that varies with depth; None if they differ."""
    sizes = {
        basis.size
        for block in blocks(model).values()
        for basis in block.expansion.weights.values()
        if basis.size > 1
    }
    return None if len(sizes) > 1 else max(sizes, default=1)


def check_nested(models: Sequence[nn.Module], sizes: Sequence[Choice]) -> None:
    """Refuse sizes of which the first is not the model, or one is not contained in the one before.

    The models are the model itself, and what `compress` made of it for each size.
    """
    own, *others = [list(blocks(model).values()) for model in models]
    for block, other in zip(own, others[0], strict=True):
        if block.expansion.bases != other.expansion.bases or block.solver != other.solver:
            full = own_size(models[0])
            remedy = "{}" if full is None else f"{full} or {{}}"
            raise ArgumentError(
                f"sizes begin with the model's own, {remedy}, not with {sizes[0]!r}"
            )
    for (size, smaller), pair in zip(pairwise(sizes), pairwise(others), strict=True):
        same = True
        for block, other in zip(*pair, strict=True):
            same = same and block.solver == other.solver
            for name, basis in block.expansion.weights.items():
                target = other.expansion.weights[name]
                same = same and basis == target
                if not contains(basis, target):
                    raise ArgumentError(
                        f"sizes nest, and {smaller!r} after {size!r} does not: {target!r} is not "
                        f"contained in {basis!r}"
                    )
        if same:
            raise ArgumentError(f"sizes {size!r} and {smaller!r} are the same model")


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
    root, values = w.sqrt()[:, None], smaller(s)
    rest = root * (values - larger(s) @ projection(smaller, larger))
    return float(rest.norm()) <= 1e-6 * float((root * values).norm())
