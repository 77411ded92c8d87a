"""The blocks of a model as JSON, and the blocks of a new model as a file describes them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from continua._errors import FileError
from continua.basis import Basis
from continua.block import ODEBlock
from continua.field import listed, tensor
from continua.gradient import Gradient
from continua.solve import Solver
from continua.transform import blocks_if_any, coefficients, tie

from ._disk import entry
from ._factory import check_grids, decoded_value, encoded_value


def block_config(block: ODEBlock) -> dict[str, Any]:
    """The bases, solver, gradient and span of a block, ready for JSON."""
    bases = block.expansion.bases
    return {
        "solver": encoded_value(block.solver),
        "gradient": encoded_value(block.gradient),
        "span": list(block.span),
        "bases": {name: encoded_value(basis) for name, basis in bases.items()},
    }


def configure_blocks(model: nn.Module, configs: Mapping[str, Any], path: Path) -> None:
    """Give the blocks of a new model what the `block_config` of each block says."""
    blocks = blocks_if_any(model)
    if blocks.keys() != configs.keys():
        raise FileError(
            f"{path} describes the blocks {listed(configs)}, but its factory makes {listed(blocks)}"
        )
    before, changes = coefficients(model), {}
    for name in blocks:
        config, where = entry(configs, name, dict, path), f"{path}, block {name!r}"
        bases = {
            key: decoded_value(Basis, value)
            for key, value in entry(config, "bases", dict, where).items()
        }
        solver = decoded_value(Solver, entry(config, "solver", dict, where))
        gradient = decoded_value(Gradient, entry(config, "gradient", dict, where))
        changes[name] = bases, solver, gradient, tuple(entry(config, "span", list, where))
    check_grids((bases.values(), solver) for bases, solver, *_ in changes.values())
    for name, (bases, solver, gradient, span) in changes.items():
        block = blocks[name]
        if bases.keys() != block.expansion.bases.keys():
            raise FileError(f"{path}, block {name!r}: tensors differ from what the factory makes")
        stacks = {}
        for key, basis in bases.items():
            old = tensor(block.field, key)
            # Not zeros: memory that is not written to is not taken.
            stacks[key] = basis, old.new_empty(basis.size, *old.shape[1:])
        block.rebase(stacks, solver, span)
        block.gradient = gradient
    tie(before, model)
