"""A second tree of the same modules, on which a solve runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from operator import is_
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor, nn

from ._expansion import Expansion
from ._tensors import slot, tensor_in
from ._tree import Tree
from ._weights import StageWeights


class Views(NamedTuple):
    """A stack of coefficients and its rows, to be used again while its memory is the same."""

    stack: Tensor
    memory: Tensor
    rows: Sequence[Tensor]


class Slots:
    """The slots of a tree of modules into which the tensors of each evaluation are put.

    Args:
        module: the root of the tree, the field itself or a twin of it.
        field: whose coefficients are read.
        expansion: its record.

    Attributes:
        placed: whose fixed weights are in the slots.
    """

    def __init__(self, module: nn.Module, field: nn.Module, expansion: Expansion):
        self.module, self.field, self.expansion = module, field, expansion
        names = expansion.all_names
        self.slots = {name: [slot(module, n) for n in expansion.names(name)] for name in names}
        self._coefficients = {name: slot(field, name) for name in names}
        self._unused: Mapping[str, Tensor | None] = self.coefficients()  # what is in the slots
        self.placed: StageWeights | None = None

    def coefficients(self) -> dict[str, Tensor]:
        """The field's tensors that vary from evaluation to evaluation, as they are now."""
        return {name: tensor_in(*place) for name, place in self._coefficients.items()}

    def put(self, tensors: Mapping[str, Tensor | None]) -> None:
        """Put tensors into their slots."""
        for name, value in tensors.items():
            for registry, key in self.slots[name]:
                registry[key] = value

    def finish(self) -> bool:
        """Leave the slots as they were; whether another solve can use them."""
        self.placed = None
        self.put(self._unused)
        return False


class Twin(Slots):
    """A field and all its parts once more, with parameter and buffer slots of their own.

    Everything else, hooks and modes included, is shared with the field. A tensor that is put into
    a slot of the twin is seen by the twin alone.
    """

    def __init__(self, field: nn.Module, expansion: Expansion):
        tree = Tree(field)
        super().__init__(tree.copies[field], field, expansion)
        places = chain.from_iterable(self.slots.values())
        varying = {(id(registry), key) for registry, key in places}
        self._registries = [source for source, _ in tree.tensors]
        self._keys = [*chain.from_iterable(self._registries)]
        #: the field's tensors that are the same at every evaluation
        self._constants = [
            (source, key, value)
            for source, own in tree.tensors
            for key, value in own.items()
            if (id(own), key) not in varying
        ]
        self._originals = {own: part for part, own in tree.copies.items()}
        self._pairs = [*tree.others, *tree.tensors]
        self._unused = dict.fromkeys(self.slots)  # or the last graph would be kept alive
        self.put(self._unused)
        self._field_then = _Snapshot([source for source, _ in tree.others])
        self._own_then = _Snapshot([own for _, own in self._pairs])
        self.fill()

    def current(self, field: nn.Module, expansion: Expansion) -> bool:
        """Whether the twin is one of this field as it is now."""
        return (
            self.field is field
            and self.expansion is expansion
            and self._field_then.is_current()
            and self._keys == [*chain.from_iterable(self._registries)]
            and all(registry[key] is value for registry, key, value in self._constants)
        )

    def fill(self) -> None:
        """Put the counters of the field into their slots."""
        self.put({name: tensor_in(*self._coefficients[name]) for name in self.expansion.carried})

    def finish(self) -> bool:
        """Give the field what a forward has set; if that is nothing, the twin stays current."""
        super().finish()
        if self._own_then.is_current():
            return True
        for (source, own), then in zip(self._pairs, self._own_then.contents, strict=True):
            for name, value in own.items():
                if then.get(name) is not value:
                    part = isinstance(value, nn.Module)
                    source[name] = self._originals.get(value, value) if part else value
            for name in then.keys() - own.keys():
                source.pop(name, None)
        return False


class _Snapshot:
    """What some dictionaries hold now, to tell later whether any of it was replaced."""

    def __init__(self, dictionaries: Sequence[dict[str, Any]]):
        self._dictionaries = dictionaries
        self.contents = [{**one} for one in dictionaries]
        self._values = [*chain.from_iterable(map(dict.values, dictionaries))]

    def is_current(self) -> bool:
        """Whether each holds the same objects."""
        values = chain.from_iterable(map(dict.values, self._dictionaries))
        count = sum(map(len, self._dictionaries))
        return count == len(self._values) and all(map(is_, values, self._values))


class Twins:
    """The twins of a field that are not in use; as many as solves ever ran at once.

    Taking from a list and adding to it are atomic, so threads need no lock.

    Attributes:
        views: of the coefficients, by name, from the last solve without a graph.
    """

    def __init__(self) -> None:
        self.views: dict[str, Views] = {}
        self._free: list[Twin] = []

    def take(self, field: nn.Module, expansion: Expansion) -> Slots:
        """A twin of the field for one solve."""
        if torch.compiler.is_compiling():
            return Slots(field, field, expansion)  # it has no modules of its own
        try:
            twin = self._free.pop()
        except IndexError:
            return Twin(field, expansion)
        if not twin.current(field, expansion):
            self._free.clear()  # the others are as old
            return Twin(field, expansion)
        twin.fill()
        return twin

    def give_back(self, twin: Slots) -> None:
        """The solve is over."""
        if twin.finish() and isinstance(twin, Twin):
            self._free.append(twin)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return type(self)()

    def __reduce__(self) -> tuple[type[Self], tuple[()]]:
        return type(self), ()
