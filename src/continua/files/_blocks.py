"""The blocks of a fresh model as a file describes them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from continua._errors import FileError
from continua.basis import Basis
from continua.field import listed, tensor
from continua.gradient import Gradient
from continua.solve import Solver
from continua.transform import blocks_if_any, coefficients, tie

from ._disk import entry
from ._factory import check_grids, decoded_value


def match_blocks(model: nn.Module, configs: Mapping[str, Any], path: Path) -> None:
    """Give the blocks of a fresh model the bases and solvers that the file names."""
    found = blocks_if_any(model)
    if found.keys() != configs.keys():
        raise FileError(
            f"{path} describes the blocks {listed(configs)}, but its factory makes {listed(found)}"
        )
    before, read = coefficients(model), {}
    for name in found:
        told, where = entry(configs, name, dict, path), f"{path}, block {name!r}"
        bases = {
            key: decoded_value(Basis, config)
            for key, config in entry(told, "bases", dict, where).items()
        }
        read[name] = bases, decoded_value(Solver, entry(told, "solver", dict, where))
    check_grids((bases.values(), solver) for bases, solver in read.values())
    for name, block in found.items():
        told, where = configs[name], f"{path}, block {name!r}"
        bases, solver = read[name]
        span = tuple(entry(told, "span", list, where))
        if bases.keys() != block.expansion.bases.keys():
            raise FileError(f"{where}: tensors differ from what the factory makes")
        old = {key: tensor(block.field, key) for key in bases}
        # Not zeros: memory that is not written to is not taken.
        stacks = {k: (b, old[k].new_empty(b.size, *old[k].shape[1:])) for k, b in bases.items()}
        block.rebase(stacks, solver, span)
        block.gradient = decoded_value(Gradient, entry(told, "gradient", dict, where))
    tie(before, model)
