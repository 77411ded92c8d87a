"""Where the config of a model says how many layers it has."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import nn

from ._layers import Count

#: the names that configs have for a number of layers
NUMBERS = ("num_hidden_layers", "num_layers", "n_layer", "n_layers", "encoder_layers")
#: the same for the decoder where a config has two numbers
DECODER = ("decoder_layers", "num_decoder_layers")
#: and for a list with an entry per layer
LISTS = ("layer_types", "mlp_layer_types")
#: and for the layers of each stage
STAGES = "depths"


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
        for attribute in _names(config, path):
            # Some configs have several names for one number.
            alias = getattr(config, "attribute_map", {}).get(attribute, attribute)
            value = getattr(config, alias, None)
            right = value == total if isinstance(value, int) else len(value or ()) == total
            if right and not isinstance(value, bool | None):
                found[id(config), alias, None] = Count(config, alias)
        stage = [int(part) for part in path if part.isdigit()][-1:]
        depths = list(getattr(config, STAGES, None) or ())
        if stage and depths[stage[0] :][:1] == [total]:
            found[id(config), STAGES, stage[0]] = Count(config, STAGES, stage[0])
    return list(found.values())


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
