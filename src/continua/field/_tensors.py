"""The named tensors of a module: finding, reading and exchanging them."""

from __future__ import annotations

import copy
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch._C._functorch import is_functorch_wrapped_tensor as wrapped
from torch.nn.utils import parametrize

from continua._errors import ModuleError

from ._shards import in_shards, is_sharded

Registry = dict[str, Tensor | None]

SHARDED = (
    "the weights of a field are sharded, and only a forward or solve of its block gathers them. Of "
    "a sharded model there are save, refine, compress and unroll, called in every process"
)


def slot(module: nn.Module, name: str) -> tuple[Registry, str]:
    """The registry that holds a named parameter or buffer, and its key there.

    A tensor that is written to the registry is what the next call of the module reads, a plain
    tensor in the place of a parameter included.
    """
    *path, key = name.split(".")
    owner: Any = module
    for part in path:
        owner = owner._modules.get(part)
        if owner is None:
            raise ModuleError(_missing(name))
    # after it became part of a field; to look for an attribute that is not there takes long
    if "parametrizations" in owner._modules and parametrize.is_parametrized(owner, key):
        owner, key = owner.parametrizations[key], "original"
    return (owner._parameters if key in owner._parameters else owner._buffers), key


def tensor_in(registry: Registry, key: str) -> Tensor:
    """The tensor in a slot."""
    value = registry.get(key)
    if value is None:
        raise ModuleError(_missing(key))
    if type(value) not in (nn.Parameter, Tensor):
        if in_shards(value):
            raise ModuleError(SHARDED)
        if type(value).__module__.startswith("torchao"):
            raise ModuleError(
                "the weights of a field are quantised; quantise continua.unroll(model)"
            )
    return value


def _missing(name: str) -> str:
    return (
        f"the field has no tensor {name!r} any more; wrap, prune, quantise or compile a module "
        "before it becomes a field, and use DistributedDataParallel, not DataParallel"
    )


def owner(module: nn.Module, name: str) -> nn.Module:
    """The part of a module that has a named tensor of its own."""
    return module.get_submodule(name.rpartition(".")[0])


def tensor(module: nn.Module, name: str) -> Tensor:
    """The named parameter or buffer."""
    return tensor_in(*slot(module, name))


def put(module: nn.Module, names: tuple[str, ...], value: Tensor) -> None:
    """Set a tensor of the module under all its names, keeping its kind and `requires_grad`."""
    old = tensor(module, names[0])
    if isinstance(old, nn.Parameter) and not isinstance(value, nn.Parameter):
        value = nn.Parameter(value.detach(), requires_grad=old.requires_grad)
    for name in names:
        registry, key = slot(module, name)
        registry[key] = value


def tensor_names(module: nn.Module) -> tuple[dict[str, Tensor], dict[str, tuple[str, ...]]]:
    """Every parameter and buffer under its first name, and the further names of tied ones."""
    first: dict[int, str] = {}
    tensors: dict[str, Tensor] = {}
    aliases: dict[str, tuple[str, ...]] = {}
    for name, value in (
        *module.named_parameters(remove_duplicate=False),
        *module.named_buffers(remove_duplicate=False),
    ):
        known = first.setdefault(id(value), name)
        if known == name:
            tensors[name] = value
        else:
            aliases[known] = (*aliases.get(known, ()), name)
    return tensors, aliases


def has_memory(x: Tensor) -> bool:
    """Whether a tensor has memory of its own, and can be asked for it."""
    return (x.is_cpu or x.is_cuda or x.is_mps) and not x.is_inference() and not wrapped(x)


def real(dtype: torch.dtype) -> torch.dtype:
    """The real type of the same precision."""
    return dtype.to_real() if dtype.is_complex else dtype


M = TypeVar("M", bound=nn.Module)


def copied(module: M, memo: dict[int, Any] | None = None) -> M:
    """A deep copy, or a sentence on why there is none; `memo` as for `copy.deepcopy`."""
    if is_sharded(module):
        raise ModuleError(SHARDED)
    try:
        return copy.deepcopy(module, memo)
    except (RuntimeError, TypeError) as error:
        raise ModuleError(
            f"{type(module).__name__} cannot be copied ({error}); if it uses the old "
            "torch.nn.utils.weight_norm, use torch.nn.utils.parametrizations.weight_norm"
        ) from error
