"""Modules whose weights FSDP2 has spread over processes, in one piece again."""

from __future__ import annotations

import copy
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from continua._errors import ModuleError

M = TypeVar("M", bound=nn.Module)


def in_shards(value: Tensor) -> bool:
    """Whether a tensor is spread over processes."""
    return type(value).__name__ == "DTensor"  # its class is not imported until it is used


def is_sharded(module: nn.Module) -> bool:
    """Whether `fully_shard` was applied to a module or to a part of it."""
    return any(map(_wrapped, module.modules())) or any(map(in_shards, module.parameters()))


def is_first(module: nn.Module) -> bool:
    """Whether this is the first of the processes that hold the sharded weights."""
    sharded: list[Any] = [value for value in module.parameters() if in_shards(value)]
    ranks = [rank for value in sharded for rank in value.device_mesh.mesh.flatten().tolist()]
    return torch.distributed.get_rank() == min(ranks, default=0)


def gathered(module: M) -> M:
    """The module; of one in shards a copy in one piece, for which every process has to ask."""
    if not is_sharded(module):
        return module
    memo: dict[int, Any] = {}
    for name, value in module.named_parameters():
        if in_shards(value):
            mesh = value.device_mesh  # type: ignore[attr-defined]
            if mesh.get_coordinate() is None:
                raise ModuleError(
                    f"{name!r} is spread over the processes {mesh.mesh.flatten().tolist()}, and "
                    f"process {torch.distributed.get_rank()} is none of them; make this call only "
                    "on those"
                )
            full = value.detach().full_tensor()  # type: ignore[attr-defined]
            memo[id(value)] = nn.Parameter(full, requires_grad=value.requires_grad)
    for part in reversed(list(module.modules())):  # a part before what it is a part of
        if _wrapped(part):
            memo[id(part)] = copy.deepcopy(_unwrapped(part), memo)
    made: M = copy.deepcopy(module, memo)
    for part in made.modules():
        vars(part).update(_without_hooks(vars(part)))
    return made


def _wrapped(module: nn.Module) -> bool:
    return any(base.__name__ == "FSDPModule" for base in type(module).__mro__)


def _unwrapped(module: nn.Module) -> nn.Module:
    """The same content in an object of the class that the module had before."""
    _, _, before, *_ = type(module).__mro__  # that of FSDP, its base, the one before
    plain: nn.Module = object.__new__(before)
    vars(plain).update(
        (name, value)
        for name, value in _without_hooks(vars(module)).items()
        if not name.startswith("__composable_api_state_key")
    )
    return plain


def _without_hooks(content: dict[str, Any]) -> dict[str, Any]:
    """The attributes of a module, without the hooks of torch.distributed."""
    return {
        name: type(value)((key, hook) for key, hook in value.items() if not _of_fsdp(hook))
        if name.endswith("_hooks")
        else value
        for name, value in content.items()
    }


def _of_fsdp(hook: Any) -> bool:
    function = getattr(hook, "hook", hook)  # torch wraps some of them
    return str(getattr(function, "__module__", "")).startswith("torch.distributed")
