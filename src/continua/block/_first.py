"""The first evaluation of a field, and every mistake that it can show."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from continua._errors import ModuleError, ShapeError

from ._checks import has_values


def first_call(
    name: str, call: Callable[[], Any], z: Any, structure: Any, compare: bool = True
) -> Any:
    """What the field returns, or a sentence on what is wrong with it.

    Args:
        name: of the field.
        call: evaluates it.
        z: the state at which it does.
        structure: of the state, None for a single tensor.
        compare: whether to look at the values of tensors that do not tell when they are written to.
    """
    looks = not torch.compiler.is_compiling()
    versions, kept = _versions(z) if looks else [], _kept(z) if looks and compare else []
    try:
        out = call()
    except Exception as error:
        explain_failure(name, z, error)
    if looks and (versions != _versions(z) or not all(torch.equal(*both) for both in kept)):
        raise ModuleError(
            f"the field {name} changes the state it is given in place; a solver needs that "
            "state again: use inplace=False"
        )
    check_slope(name, out, z, structure)
    return out


def explain_failure(name: str, z: Any, error: Exception) -> NoReturn:
    """Raise what a field failed with, as a sentence on what it was given if that says more."""
    if type(error) not in (RuntimeError, TypeError, ValueError, IndexError):
        raise error  # ours, or one that somebody has made for a purpose
    raise ShapeError(f"the field {name} fails on a state of shape {shapes(z)}: {error}") from error


def check_slope(name: str, out: Any, z: Any, structure: Any) -> None:
    """Refuse what a field returned for dz/ds if it is not like z."""
    if isinstance(out, Tensor) and isinstance(z, Tensor) and out.shape == z.shape:
        return
    if structure is None and not isinstance(out, Tensor):
        raise ShapeError(f"the field {name} returned {type(out).__name__}, not a tensor")
    if structure is not None and pytree.tree_structure(out) != structure:
        raise ShapeError(
            f"the field {name} returned a {type(out).__name__} of another structure than "
            f"the state, which is a {type(z).__name__} of {shapes(z)}"
        )
    if shapes(out) != shapes(z):
        raise ShapeError(
            f"the field {name} maps a state of shape {shapes(z)} to "
            f"{shapes(out)}; dz/ds must have the shape of z"
        )


def shapes(z: Any) -> Any:
    """The shape of a state, or the shapes of its parts."""
    if isinstance(z, Tensor):
        return list(z.shape)
    return [list(part.shape) for part in pytree.tree_leaves(z)]


def _versions(z: Any) -> list[int]:
    """How often each part of a state was written to, where that can be known."""
    if isinstance(z, Tensor):
        return [] if z.is_inference() else [z._version]
    return [part._version for part in pytree.tree_leaves(z) if not part.is_inference()]


def _kept(z: Any) -> list[tuple[Tensor, Tensor]]:
    """The parts of a state of which it cannot be known, each with a copy."""
    parts = [z] if isinstance(z, Tensor) else pytree.tree_leaves(z)
    return [
        (part, part.clone())
        for part in parts
        if part.is_inference() and part.is_cpu and has_values(part)
    ]
