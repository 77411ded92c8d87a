"""Modules whose weights FSDP2 has spread over processes, in one piece again."""

from __future__ import annotations

import copy
import functools
import sys
from collections.abc import Callable
from dataclasses import is_dataclass
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn

from continua._errors import ModuleError

M = TypeVar("M", bound=nn.Module)
F = TypeVar("F", bound=Callable[..., Any])


def in_shards(value: Tensor) -> bool:
    """Whether a tensor is spread over processes."""
    return type(value).__name__ == "DTensor"  # its class is not imported until it is used


def is_sharded(module: nn.Module) -> bool:
    """Whether `fully_shard` was applied to a module or to a part of it."""
    return any(map(is_fsdp_module, module.modules())) or any(map(in_shards, module.parameters()))


def is_first(module: nn.Module) -> bool:
    """Whether this is the first of the processes that hold the sharded weights."""
    sharded: list[Any] = [value for value in module.parameters() if in_shards(value)]
    ranks = [rank for value in sharded for rank in value.device_mesh.mesh.flatten().tolist()]
    return torch.distributed.get_rank() == min(ranks, default=0)


def gathering(call: F) -> F:
    """A method of a block that reads the weights of `block.field`, where parts may be sharded.

    FSDP gathers the weights of a part before its forward and frees them after it, by hooks. A
    solve reads the weights before it calls any part, so the hooks run around the solve.
    """

    @functools.wraps(call)
    def around(block: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
        fsdp = None if torch.compiler.is_compiling() else sys.modules.get("torch.distributed.fsdp")
        parts = [p for p in block.field.modules() if isinstance(p, fsdp.FSDPModule)] if fsdp else []
        if not parts:
            return call(block, x, *args, **kwargs)
        given: tuple[Any, ...] = (x,)
        for part in parts:
            for hook in filter(_of_fsdp, part._forward_pre_hooks.values()):
                given, _ = hook(part, given, {})
        out = call(block, *given, *args, **kwargs)
        for part in reversed(parts):
            for hook in filter(_of_fsdp, part._forward_hooks.values()):
                seen = vars(out) if is_dataclass(out) else out  # a solution of several tensors
                found = hook(part, given, seen)
                out = out if is_dataclass(out) else found
        return out

    return cast(F, around)


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
        if is_fsdp_module(part):
            memo[id(part)] = copy.deepcopy(_without_fsdp(part), memo)
    made: M = copy.deepcopy(module, memo)
    for part in made.modules():
        vars(part).update(without_fsdp_hooks(vars(part)))
    return made


def is_fsdp_module(module: nn.Module) -> bool:
    return any(base.__name__ == "FSDPModule" for base in type(module).__mro__)


def _without_fsdp(module: nn.Module) -> nn.Module:
    """The same content in an object of the class that the module had before."""
    _, _, before, *_ = type(module).__mro__  # that of FSDP, its base, the one before
    plain: nn.Module = object.__new__(before)
    vars(plain).update(
        (name, value)
        for name, value in without_fsdp_hooks(vars(module)).items()
        if not name.startswith("__composable_api_state_key")
    )
    return plain


def without_fsdp_hooks(content: dict[str, Any]) -> dict[str, Any]:
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
