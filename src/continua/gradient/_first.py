"""The first evaluation of a field, and every mistake that it can show."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from continua._errors import ModuleError, ShapeError

from ._checks import check_values
from ._finite import has_values


def first_call(name: str, call: Callable[[Any], Any], z: Any, structure: Any) -> Any:
    """What the field returns, or a sentence on what is wrong with it."""
    looks = not torch.compiler.is_compiling()
    versions, kept = (_versions(z), _kept(z)) if looks else ([], [])
    try:
        out = call(z)
    except (RuntimeError, TypeError, ValueError, IndexError) as error:
        if type(error) not in (RuntimeError, TypeError, ValueError, IndexError):
            raise  # ours, or one that somebody has made for a purpose
        parts = pytree.tree_leaves(z)
        check_values(tuple(parts))  # on which many a field fails
        raise ShapeError(
            f"the field {name} fails on a state of shape {shapes(z)}: {error}"
        ) from error
    if looks and (versions != _versions(z) or not all(torch.equal(*both) for both in kept)):
        raise ModuleError(
            f"the field {name} changes the state it is given in place; a solver needs that "
            "state again: use inplace=False"
        )
    _check_slope(name, out, z, structure)
    return out


def _check_slope(name: str, out: Any, z: Any, structure: Any) -> None:
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
