"""Where the config of a model says how many layers it has."""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import Any

from torch import nn

from ._layout import Count

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
        """The same as for a number; a state that is given out is that at the nearest depth."""
        names, taken = getattr(self.config, self.name), self.config.out_indices
        old, more = len(names), now - before
        # The model has the same list.
        names[:] = [names[0], *(f"stage{i + 1}" for i in range(old - 1 + more))]

        def moved(i: int) -> int:
            if i <= start:
                return i
            return (
                i + more
                if i >= start + before
                else start + max(round((i - start) * now / before), 1)
            )

        self.config.out_indices = sorted({moved(i % old) for i in taken})


def counts(model: nn.Module, name: str, total: int) -> list[Count]:
    """The numbers in the configs of a model that say how long a list of layers is.

    Args:
        model: its parts may have an attribute `config`.
        name: of the list.
        total: how long it is.
    """
    found: dict[tuple[int, str, int | None], Count] = {}
    path = name.split(".")
    owners = [model.get_submodule(".".join(path[:i])) for i in range(len(path))]
    configs = {id(c): c for c in (getattr(owner, "config", None) for owner in owners) if c}
    for config in configs.values():
        stage = _stage(config, path, total)
        if stage is not None:
            found[id(config), stage.name, stage.place] = stage
            continue
        for attribute in _names(config, path):
            # Some configs have several names for one number.
            alias = getattr(config, "attribute_map", {}).get(attribute, attribute)
            value = getattr(config, alias, None)
            if _says(value, total) and not _is_derived(config, alias):
                found[id(config), alias, None] = Count(config, alias)
        if _says(getattr(config, "stage_names", None), total + 1):
            found[id(config), "stage_names", None] = States(config, "stage_names")
    return list(found.values())


def beside(model: nn.Module, name: str, total: int, taken: Container[str]) -> list[str]:
    """What else has an entry for each layer of a list: other lists and tensors next to it.

    Args:
        model: the whole model.
        name: of the list.
        total: how long it is.
        taken: the names of lists that become blocks themselves.
    """
    if isinstance(model.get_submodule(name), nn.Sequential):  # which calls its layers itself
        return []
    path, _, own = name.rpartition(".")
    owner = model.get_submodule(path)
    prefix = path and f"{path}."
    lists = {n: len(m) for n, m in owner.named_children() if isinstance(m, HOLDERS)}
    tensors = (*owner.named_parameters(recurse=False), *owner.named_buffers(recurse=False))
    sizes = lists | {n: t.shape[0] for n, t in tensors if t.dim()}
    return [
        prefix + n
        for n, size in sizes.items()
        if size == total and n != own and prefix + n not in taken
    ]


def _says(value: Any, total: int) -> bool:
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
    for name in STAGES:
        depths = getattr(config, name, None)
        if numbers and isinstance(depths, list | tuple):
            at = numbers[-1]
            if [*depths[at : at + 1]] == [total]:
                return Count(config, name, at)
    return None


def _names(config: Any, path: list[str]) -> Iterator[str]:
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
