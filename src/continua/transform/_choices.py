"""What a verb is to do with each block of a model."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple

from continua._errors import ArgumentError
from continua.block import ODEBlock
from continua.field import choose, matches

#: what a block may be given of its own
KEYS = ("basis", "state_basis", "steps", "solver")


class Names(NamedTuple):
    """The names in a model: its blocks, and the tensors of all of them, aliases included."""

    blocks: list[str]
    weights: list[str]
    state: list[str]


def names_in(blocks: Mapping[str, ODEBlock]) -> Names:
    """The names in a model with these blocks."""
    expansions = [block.expansion for block in blocks.values()]
    weights = [n for e in expansions for first in e.weights for n in e.names(first)]
    state = [n for e in expansions for first in e.state for n in e.names(first)]
    return Names(list(blocks), list(dict.fromkeys(weights)), list(dict.fromkeys(state)))


def choices(
    names: Names, for_all: Mapping[str, Any], per_block: Mapping[str, Mapping[str, Any]] | None
) -> dict[str, dict[str, Any]]:
    """For each block its basis, state basis, steps and solver, as far as they are given."""
    own = _own({} if per_block is None else per_block, names.blocks)
    tensors = {"basis": names.weights + names.state, "state_basis": names.state}
    old = [k for k, known in tensors.items() if _names_blocks(for_all[k], names.blocks, known)]
    chosen = {
        key: dict.fromkeys(names.blocks, value)
        if key in tensors and key not in old
        else choose(value, names.blocks, "block")
        for key, value in for_all.items()
    }
    if old:
        new = {name: {key: chosen[key][name] for key in old} for name in names.blocks}
        warnings.warn(
            f"patterns of blocks in {' and '.join(old)} are now per_block={new}; "
            "the next version takes patterns of tensors there alone",
            DeprecationWarning,
            stacklevel=3,
        )
    return {name: {key: chosen[key][name] for key in KEYS} | own[name] for name in names.blocks}


def _own(per_block: Any, blocks: list[str]) -> dict[str, dict[str, Any]]:
    """What each block is given in `per_block`."""
    if not isinstance(per_block, Mapping):
        raise ArgumentError(f"per_block maps patterns of blocks to choices, not {per_block!r}")
    for pattern, own in per_block.items():
        if not isinstance(own, Mapping):
            raise ArgumentError(
                f"per_block[{pattern!r}] is a mapping such as {{'basis': basis, 'steps': 4}}, "
                f"not {own!r}"
            )
        if unknown := [key for key in own if key not in KEYS]:
            raise ArgumentError(
                f"per_block[{pattern!r}] has {unknown[0]!r}; the choices are {', '.join(KEYS)}"
            )
    chosen = choose({**per_block, "*": per_block.get("*", {})}, blocks, "block")
    return {name: dict(own) for name, own in chosen.items()}


def _names_blocks(choice: Any, blocks: list[str], tensors: list[str]) -> bool:
    """Whether the patterns are of blocks, as in earlier versions; both means tensors."""
    if not isinstance(choice, Mapping):
        return False
    if any(isinstance(value, Mapping) for value in choice.values()):
        return True
    return not all(matches(p, tensors) for p in choice) and all(matches(p, blocks) for p in choice)
