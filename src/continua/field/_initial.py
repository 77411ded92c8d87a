"""The first coefficients of an expanded module."""

from __future__ import annotations

from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from continua._errors import ArgumentError, ModuleError
from continua.basis import Basis, Constant, least_squares, projection, sample

from ._tensors import copied, tensor

Init = Literal["copy", "independent"]

#: directions in which a fit to independent draws would amplify them by more than its inverse
#: are left out: high powers of s would otherwise start with coefficients in the thousands
AMPLIFICATION = 0.02


def initial_stacks(
    module: nn.Module, weights: dict[str, Basis], state: dict[str, Basis], init: Init
) -> dict[str, Tensor]:
    """The coefficients `[K, ...]` of every tensor to expand."""
    if init not in get_args(Init):
        raise ArgumentError(f"init is 'copy' or 'independent', not {init!r}")
    names = [*weights, *state] if init == "copy" else [*state]
    stacks = {name: constant(tensor(module, name), (weights | state)[name]) for name in names}
    if init == "independent":
        stacks |= independent(module, weights)
    return stacks


def constant(value: Tensor, basis: Basis) -> Tensor:
    """The coefficients of the function that has this value at every depth."""
    ones = projection(Constant(), basis)[:, 0]
    ones = torch.where((ones - ones.round()).abs() < 1e-12, ones.round(), ones)
    return ones.to(value).reshape(-1, *[1] * value.dim()) * value.detach()


def independent(module: nn.Module, bases: dict[str, Basis]) -> dict[str, Tensor]:
    """A fresh draw of `reset_parameters` at each node, as far as the basis can follow them."""
    draws: dict[str, list[Tensor]] = {name: [] for name in bases}
    trial = copied(module)
    resets = [_reset(trial, path) for path in dict.fromkeys(n.rpartition(".")[0] for n in bases)]
    for _ in range(max((basis.size for basis in bases.values()), default=0)):
        for reset in resets:
            reset()
        for name in bases:
            draws[name].append(tensor(trial, name).detach().clone())
    stacks = {}
    for name, basis in bases.items():
        values = torch.stack(draws[name][: basis.size])  # [K, ...]
        inverse = least_squares(sample(basis, basis.nodes), rcond=AMPLIFICATION)
        stacks[name] = torch.tensordot(inverse.to(values), values, dims=1)
    return stacks


def _reset(module: nn.Module, path: str) -> Any:
    owner = module.get_submodule(path)
    reset: Any = getattr(owner, "reset_parameters", None) or getattr(
        owner, "_reset_parameters", None
    )
    where = f"submodule {path!r}" if path else "the field"
    if reset is None or parametrize.is_parametrized(owner) or "parametrizations" in path:
        raise ModuleError(
            f"init='independent' calls reset_parameters, which {where} "
            f"({type(owner).__name__}) does not offer; give it one, or use init='copy'"
        )
    return reset
