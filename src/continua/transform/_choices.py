"""What a verb is to do with each block of a model."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from continua._errors import ArgumentError
from continua.block import ODEBlock
from continua.field import choose, matches

#: what a block may be given of its own
KEYS = ("basis", "state_basis", "steps", "solver")
#: where patterns of block names go
PER_BLOCK = "choices for some blocks go into per_block={pattern of blocks: {'basis': basis}}"


@dataclass(frozen=True)
class Names:
    """The names in a model: its blocks, and the tensors of all of them, aliases included."""

    blocks: tuple[str, ...]
    weights: tuple[str, ...]
    state: tuple[str, ...]

    @classmethod
    def of(cls, blocks: Mapping[str, ODEBlock]) -> Self:
        """The names in a model with these blocks."""
        expansions = [block.expansion for block in blocks.values()]
        weights = [n for e in expansions for first in e.weights for n in e.names(first)]
        state = [n for e in expansions for first in e.state for n in e.names(first)]
        return cls(tuple(blocks), tuple(dict.fromkeys(weights)), tuple(dict.fromkeys(state)))


def choices(
    names: Names,
    basis: Any,
    state_basis: Any,
    steps: Any,
    solver: Any,
    per_block: Mapping[str, Mapping[str, Any]] | None,
) -> dict[str, dict[str, Any]]:
    """For each block its basis, state basis, steps and solver, as far as they are given."""
    own = _own(per_block, names.blocks)
    tensors = (*names.weights, *names.state)
    by_block = {
        key: choose(value, names.blocks, "block")
        for key, value in (("basis", basis), ("state_basis", state_basis))
        if _names_blocks(value, names.blocks, tensors if key == "basis" else names.state)
    }
    if by_block:
        new = {name: {key: by_block[key][name] for key in by_block} for name in names.blocks}
        warnings.warn(
            f"patterns of blocks in {' and '.join(by_block)} are now per_block={new}; "
            "the next version takes patterns of tensors there alone",
            DeprecationWarning,
            stacklevel=3,
        )
    for_all = {
        "basis": dict.fromkeys(names.blocks, basis),
        "state_basis": dict.fromkeys(names.blocks, state_basis),
        "steps": choose(steps, names.blocks, "block"),
        "solver": choose(solver, names.blocks, "block"),
    } | by_block
    return {
        name: {key: for_all[key][name] for key in KEYS} | dict(own[name]) for name in names.blocks
    }


def _own(
    per_block: Mapping[str, Mapping[str, Any]] | None, blocks: tuple[str, ...]
) -> dict[str, Mapping[str, Any]]:
    """What each block is given in `per_block`."""
    per_block = {} if per_block is None else per_block
    if not isinstance(per_block, Mapping):
        raise ArgumentError(f"per_block maps patterns of blocks to choices, not {per_block!r}")
    for pattern, own in per_block.items():
        if not isinstance(own, Mapping):
            raise ArgumentError(
                f"per_block[{pattern!r}] is a mapping such as {{'basis': basis, 'steps': 4}}, "
                f"not {own!r}"
            )
        for key in own:
            if key not in KEYS:
                raise ArgumentError(
                    f"per_block[{pattern!r}] has {key!r}; the choices are {', '.join(KEYS)}"
                )
    return choose({**per_block, "*": per_block.get("*", {})}, blocks, "block")


def _names_blocks(choice: Any, blocks: tuple[str, ...], tensors: tuple[str, ...]) -> bool:
    """Whether the patterns are of blocks, as in earlier versions; both means tensors."""
    if not isinstance(choice, Mapping):
        return False
    if any(isinstance(value, Mapping) for value in choice.values()):
        return True
    return not all(matches(p, tensors) for p in choice) and all(matches(p, blocks) for p in choice)
