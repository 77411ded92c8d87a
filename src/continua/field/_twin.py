"""A second tree of the same modules, on which a solve runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
        first = {name: places[0] for name, places in self.slots.items()}
        self._before = {name: registry.get(key) for name, (registry, key) in first.items()}
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
        self.put(self._before)
        return False


class Twin(Slots):
    """A field and all its parts once more, with parameter and buffer slots of their own.

    Everything else, hooks and modes included, is shared with the field. A tensor that is put into
    a slot of the twin is seen by the twin alone.
    """

    def __init__(self, field: nn.Module, expansion: Expansion):
        names = [n for name in expansion.all_names for n in expansion.names(name)]
        self._tree = Tree(field, [slot(field, name) for name in names])
        super().__init__(self._tree.root, field, expansion)
        self.fill()

    def current(self, field: nn.Module, expansion: Expansion) -> bool:
        """Whether the twin is one of this field as it is now."""
        return self.field is field and self.expansion is expansion and self._tree.is_current()

    def fill(self) -> None:
        """Put the counters of the field into their slots."""
        self.put({name: tensor_in(*self._coefficients[name]) for name in self.expansion.carried})

    def finish(self) -> bool:
        """Hand to the field what a forward has set; if that is nothing, the twin stays current."""
        super().finish()
        return not self._tree.hand_over()


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
