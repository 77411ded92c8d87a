"""Where the config of a model says how many layers it has."""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import Any

from torch import nn

from ._layers import Count

#: the names that configs have for a number of layers
NUMBERS = ("num_hidden_layers", "num_layers", "n_layer", "n_layers", "encoder_layers")
#: the same for the decoder where a config has two numbers
DECODER = ("decoder_layers", "num_decoder_layers")
#: and for a list with an entry per layer
LISTS = ("layer_types", "mlp_layer_types", "attention_window")
#: and for the layers of each stage
STAGES = ("depths", "depth")
#: modules that hold others, or tensors, one for each layer for instance
HOLDERS = (nn.ModuleList, nn.ModuleDict, nn.ParameterList, nn.ParameterDict)


class States(Count):
    """The names that a backbone has for the states before and after its layers."""

    def change(self, start: int, before: int, now: int) -> None:
        """As for a number; instead of a state that is gone the backbone returns the nearest one."""
        names, outputs = getattr(self.config, self.name), self.config.out_indices
        old, more = len(names), now - before
        # In place, since the model has the same list.
        names[:] = [names[0], *(f"stage{i + 1}" for i in range(old - 1 + more))]

        def moved(i: int) -> int:
            if i <= start:
                return i
            if i >= start + before:
                return i + more
            return start + max(round((i - start) * now / before), 1)

        self.config.out_indices = sorted({moved(i % old) for i in outputs})


def counts(model: nn.Module, name: str, total: int) -> list[Count]:
    """Where the configs of a model and of its parts say how long a list of layers is."""
    found: list[Count] = []
    path = name.split(".")
    owners = [model.get_submodule(".".join(path[:i])) for i in range(len(path))]
    configs = {id(c): c for c in (getattr(owner, "config", None) for owner in owners) if c}
    for config in configs.values():
        if stage := _stage(config, path, total):
            found.append(stage)
            continue
        aliases = getattr(config, "attribute_map", {})  # several names for one number
        for attribute in dict.fromkeys(aliases.get(n, n) for n in _candidates(config, path)):
            value = getattr(config, attribute, None)
            if _is_count(value, total) and not _is_derived(config, attribute):
                found.append(Count(config, attribute))
        if _is_count(getattr(config, "stage_names", None), total + 1):
            found.append(States(config, "stage_names"))
    return found


def beside(model: nn.Module, name: str, total: int, taken: Container[str]) -> list[str]:
    """What else has an entry for each layer of a list: other lists and tensors next to it.

    Lists that become blocks themselves are `taken`.
    """
    if isinstance(model.get_submodule(name), nn.Sequential):  # which calls its layers itself
        return []
    path, _, own = name.rpartition(".")
    owner, prefix = model.get_submodule(path), path and f"{path}."
    tensors = (*owner.named_parameters(recurse=False), *owner.named_buffers(recurse=False))
    sizes = {n: len(m) for n, m in owner.named_children() if isinstance(m, HOLDERS)}
    sizes |= {n: t.shape[0] for n, t in tensors if t.dim()}
    others = [prefix + n for n, size in sizes.items() if size == total and n != own]
    return [other for other in others if other not in taken]


def _is_count(value: Any, total: int) -> bool:
    """Whether a value is this number of layers, or has an entry for each."""
    if isinstance(value, list | tuple):
        return len(value) == total
    return type(value) is int and value == total


def _is_derived(config: Any, name: str) -> bool:
    """Whether an attribute is worked out from others."""
    found = getattr(type(config), name, None)
    return isinstance(found, property) and found.fset is None


def _stage(config: Any, path: list[str], total: int) -> Count | None:
    """Where a config says how many layers a stage has, if the list is that of a stage."""
    numbers = [int(part) for part in path if part.isdigit()]
    for name in STAGES if numbers else ():
        depths, at = getattr(config, name, None), numbers[-1]
        if isinstance(depths, list | tuple) and list(depths[at : at + 1]) == [total]:
            return Count(config, name, at)
    return None


def _candidates(config: Any, path: list[str]) -> Iterator[str]:
    """Which numbers of a config may be meant, in a model with an encoder and a decoder too."""
    own = [name for name in DECODER if hasattr(config, name)]
    decodes = any("decoder" in part for part in path)
    if decodes and own:
        yield from own
        if getattr(config, "is_decoder", False):
            yield "num_layers"
    else:
        yield from NUMBERS
        yield from LISTS
