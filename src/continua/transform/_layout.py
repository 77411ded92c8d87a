"""Where a run of layers stands in its model, and the settings of each layer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from torch import nn

from ._differences import Difference, differences

#: parts of the names of attributes that count layers
INDICES = ("idx", "index", "layer_id", "layer_num", "seed")


@dataclass
class Count:
    """Where a model's own config says how many layers there are.

    Attributes:
        config: the object.
        name: of its attribute, a number or a list with an entry per layer.
        place: in a list of numbers, which one.
    """

    config: Any
    name: str
    place: int | None = None

    def change(self, start: int, before: int, now: int) -> None:
        """Write that the `before` layers from number `start` on are `now` layers."""
        value = getattr(self.config, self.name)
        if self.place is not None:
            value = [v + (now - before) * (i == self.place) for i, v in enumerate(value)]
        elif isinstance(value, list | tuple):
            run = value[start : start + before] or value[-1:]
            run = [run[i % len(run)] for i in range(now)]
            value = [*value[:start], *run, *value[start + before :]]
        else:
            value += now - before
        setattr(self.config, self.name, value)


@dataclass
class Index:
    """An attribute of a layer outside of runs that counts layers."""

    part: nn.Module
    name: str

    def shift(self, by: int) -> None:
        """Count so many more layers before this one."""
        setattr(self.part, self.name, getattr(self.part, self.name) + by)


@dataclass
class Layout:
    """Where a run of layers stands in its model, and the settings of each layer.

    Attributes:
        start: the number of its first layer in the model's list.
        units: how many groups of layers the run has, of one layer each if none recur.
        period: how many layers a group has.
        ignore: patterns of attributes in which the layers may differ.
        names: of its layers in the model's list.
        counts: where the model says how many layers it has.
        beside: what else in the model has an entry for each layer of the list.
        behind: the runs after this one in the model's list, and the indices in other layers.
        indices: attributes that count layers, with their value in the first unit minus `start`.
        rates: attributes that differ from unit to unit, with all values.
        total: how many layers the list has.
    """

    start: int
    units: int
    period: int = 1
    ignore: Sequence[str] = ()
    names: Sequence[str] = ()
    counts: Sequence[Count] = ()
    beside: Sequence[str] = ()
    behind: Sequence[Layout | Index] = ()
    indices: dict[str, int] = field(default_factory=dict)
    rates: dict[str, list[Any]] = field(default_factory=dict)
    total: int = 0

    def note(self, before: int, now: int) -> None:
        """Write the new number of units to the config, and shift the layers after the run."""
        for count in self.counts:
            count.change(self.start, before * self.period, now * self.period)
        for other in self.behind:
            other.shift((now - before) * self.period)

    def shift(self, by: int) -> None:
        """Count so many more layers before the run."""
        self.start += by

    def read_settings(self, layers: Sequence[nn.Module]) -> None:
        """Store the attributes in which the layers of the run differ."""
        for member in range(self.period):
            units = layers[member :: self.period]
            prefix = f"{member}." if self.period > 1 else ""
            found = {
                difference.path: difference
                for one, other in pairwise(units)
                for difference in differences("layers", one, other, self.ignore)
            }
            for path, difference in found.items():
                if is_index(difference, self.period):
                    self.indices[prefix + path] = _attribute(units[0], path) - self.start
                else:
                    # Some models have no dropout where the rate is 0.
                    self.rates[prefix + path] = [_attribute(layer, path, 0.0) for layer in units]

    def settings(self, step: int, steps: int) -> Iterator[tuple[str, str, Any]]:
        """The settings of the layer at a step: the name of a part, its attribute and the value."""
        nearest = int((step + 0.5) * self.units / steps)
        at = self.start + step * self.period
        own: dict[str, Any] = {path: at + first for path, first in self.indices.items()}
        own |= {path: values[nearest] for path, values in self.rates.items()}
        for path, value in own.items():
            part, _, name = path.rpartition(".")
            yield part, name, value


def indices(layer: nn.Module, at: int) -> list[Index]:
    """The attributes of a layer that say which one of a list it is."""
    return [
        Index(part, name)
        for part in layer.modules()
        for name, value in vars(part).items()
        if type(value) is int and value == at and _counts_layers(name)
    ]


def is_index(difference: Difference, step: int) -> bool:
    """Whether two layers, so many apart in a list, differ in an attribute that counts layers."""
    path, one, other = difference
    whole = type(one) is int and type(other) is int
    return whole and other - one == step and _counts_layers(path.rpartition(".")[2])


def is_rate(difference: Difference, *layers: nn.Module) -> bool:
    """Whether two layers differ in a rate of dropout."""
    path, one, other = difference
    part = path.rpartition(".")[0]
    owners = [type(layer.get_submodule(part)).__name__ for layer in layers]
    named = "drop" in " ".join([path, *owners]).lower()
    return named and all(type(v) in (int, float) for v in (one, other))


def _counts_layers(name: str) -> bool:
    return any(word in name.lower() for word in INDICES)


def _attribute(layer: nn.Module, path: str, default: Any = None) -> Any:
    part, _, name = path.rpartition(".")
    return getattr(layer.get_submodule(part), name, default)
