"""A second tree of the same modules, on which a solve runs."""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from operator import is_
from types import FunctionType, MethodType
from typing import Any, Self

import torch
from torch import Tensor, nn

from continua.basis import Basis

from ._expansion import Expansion
from ._sampling import Sampling
from ._shards import without_hooks, wrapped
from ._tensors import Registry, held, slot
from ._weights import StageWeights


class Kept:
    """The weights of a solve in evaluation mode, which are views of the coefficients.

    Args:
        weights: as they were read.
        coefficients: the tensors of the field.
        memory: the same detached, whose views the weights are.
    """

    def __init__(
        self, weights: StageWeights, coefficients: Sequence[Tensor], memory: Sequence[Tensor]
    ):
        self.weights, self._coefficients, self._memory = weights, coefficients, memory
        self._inference = torch.is_inference_mode_enabled()  # its tensors stay in there

    def reads(self, samplings: Mapping[Basis, Sampling], coefficients: Collection[Tensor]) -> bool:
        """Whether a solve would read the same memory in the same places."""
        return (
            self.weights.samplings is samplings
            and self._inference == torch.is_inference_mode_enabled()
            and all(map(is_, self._coefficients, coefficients))
            and all(map(Tensor.is_set_to, self._coefficients, self._memory))
        )


class Twin:
    """A field and all its parts once more, with parameter and buffer slots of their own.

    Everything else, hooks and modes included, is shared with the field. A tensor that is put into
    a slot of the twin is seen by the twin alone.
    """

    def __init__(self, field: nn.Module, expansion: Expansion):
        self.field, self.expansion = field, expansion
        self.kept: Kept | None = None  #: what was read for its last solve in evaluation mode
        self.placed: list[StageWeights | None] = [None]  #: whose fixed weights are in the slots
        self._twins: dict[nn.Module, nn.Module] = {
            part: object.__new__(type(part)) for part in field.modules()
        }
        #: objects and dictionaries that refer to parts, and those of the twin in their place
        self._known: dict[int, Any] = {}
        self._copied: list[tuple[dict[str, Any], dict[str, Any]]] = []
        for part, twin in self._twins.items():
            # Copies, since another thread may add to what is iterated over.
            attributes, children = vars(part).copy(), part._modules.copy()
            for kind in ("_parameters", "_buffers", "_modules"):
                del attributes[kind]
            if wrapped(part):  # its hooks run around the solve
                attributes = without_hooks(attributes)
            vars(twin).update({name: self._mapped(value) for name, value in attributes.items()})
            children = {name: self._mapped(child) for name, child in children.items()}
            own = {"_parameters": {**part._parameters}, "_buffers": {**part._buffers}}
            vars(twin).update(own, _modules=children)
            vars(twin).pop("_compiled_call_impl", None)  # compiled code calls the field itself
        self.module = self._twins[field]
        names = (*expansion.weights, *expansion.state, *expansion.carried)
        self.slots = {name: [slot(self.module, n) for n in expansion.names(name)] for name in names}
        self._coefficients = {name: slot(field, name) for name in names}
        varying = {
            (id(registry), key) for places in self.slots.values() for registry, key in places
        }
        registries: list[tuple[Registry, Registry]] = [
            (vars(part)[kind], vars(twin)[kind])
            for part, twin in self._twins.items()
            for kind in ("_parameters", "_buffers", "_modules")
        ]
        self._sources, self._targets = zip(*registries, strict=True)
        self._keys = [*chain.from_iterable(self._sources)]
        #: the slots of tensors that are the same at every evaluation
        self._others = [
            (source, own, key)
            for source, own in registries
            for key, value in source.items()
            if (id(own), key) not in varying and not isinstance(value, nn.Module)
        ]
        self.fill()
        self._known.clear()
        self._copied[:0] = [(vars(part), vars(twin)) for part, twin in self._twins.items()]
        #: what the field and the twin hold, as it is now
        sources = [source for source, _ in self._copied]
        self._field = _Seen([*sources, *(part._modules for part in self._twins)])
        self._own = _Seen([own for _, own in self._copied])

    def _mapped(self, value: Any) -> Any:
        """An attribute, with the twin of every part of the field that it refers to."""
        if isinstance(value, nn.Module):
            return self._twins.get(value, value)
        if isinstance(value, MethodType):
            owner = self._mapped(value.__self__)
            return value if owner is value.__self__ else MethodType(value.__func__, owner)
        if isinstance(value, partial):
            parts = [self._mapped(part) for part in (value.func, value.args, value.keywords)]
            same = all(map(is_, parts, (value.func, value.args, value.keywords)))
            return value if same else partial(parts[0], *parts[1], **parts[2])
        if id(value) in self._known:
            return self._known[id(value)]
        if isinstance(value, Mapping):
            self._known[id(value)] = value  # it may contain itself
            found = {key: self._mapped(part) for key, part in value.items()}
            if not all(map(is_, found.values(), value.values())):
                source, value = value, copy.copy(value)
                value.update(found)
                self._known[id(source)] = value
                self._copied += [(source, value)] if isinstance(source, dict) else []
        elif isinstance(value, list | tuple | set | frozenset | deque):
            parts = [self._mapped(part) for part in value]
            if not all(map(is_, parts, value)):
                named = isinstance(value, tuple) and hasattr(value, "_fields")
                value = type(value)(*parts) if named else type(value)(parts)
        elif any(isinstance(p, nn.Module) and p in self._twins for p in _attributes(value)):
            source, value = value, copy.copy(value)
            self._known[id(source)] = value  # before its parts, which may refer to it
            vars(value).update({key: self._mapped(part) for key, part in vars(source).items()})
            self._copied.append((vars(source), vars(value)))
        return value

    def current(self, field: nn.Module, expansion: Expansion) -> bool:
        """Whether the twin is one of this field as it is now."""
        return (
            self.field is field
            and self.expansion is expansion
            and self._field.same()
            and self._keys == [*chain.from_iterable(self._sources)]
        )

    def coefficients(self) -> dict[str, Tensor]:
        """The field's tensors that vary from evaluation to evaluation, as they are now."""
        return {name: held(*place) for name, place in self._coefficients.items()}

    def put(self, tensors: Mapping[str, Tensor]) -> None:
        """Put tensors into their slots."""
        for name, value in tensors.items():
            for registry, key in self.slots[name]:
                registry[key] = value

    def fill(self) -> None:
        """Put the field's other tensors into their slots."""
        self._before = [source[key] for source, _, key in self._others]
        for (_, own, key), value in zip(self._others, self._before, strict=True):
            own[key] = value
        self.put({name: held(*self._coefficients[name]) for name in self.expansion.carried})

    def finish(self) -> bool:
        """Hand what a forward has set to the field; whether the twin can be used again."""
        usable = True
        self.placed[0] = None
        for places in self.slots.values():
            for registry, key in places:
                registry[key] = None  # or the graph of the last evaluation would be kept alive
        for (source, own, key), tensor in zip(self._others, self._before, strict=True):
            if own.get(key) is not tensor:
                source[key] = own.get(key)
        if self._keys != [*chain.from_iterable(self._targets)]:
            for source, own in zip(self._sources, self._targets, strict=True):
                source.update({key: own[key] for key in own.keys() - source.keys()})
            usable = False
        if not self._own.same():
            for (source, _), (own, before) in zip(self._copied, self._own, strict=True):
                source.update({n: v for n, v in own.items() if before.get(n) is not v})
                for name in before.keys() - own.keys():
                    source.pop(name, None)
            usable = False
        return usable


def _attributes(value: Any) -> Collection[Any]:
    """What a plain object holds."""
    plain = hasattr(value, "__dict__") and not isinstance(value, Tensor | type | FunctionType)
    return vars(value).values() if plain else ()


class _Seen:
    """What some dictionaries hold, to tell whether any of it was replaced."""

    def __init__(self, now: list[dict[str, Any]]):
        self._now, self._then = now, [{**one} for one in now]
        self._values = [value for one in now for value in one.values()]

    def same(self) -> bool:
        """Whether each holds the same objects."""
        values = chain.from_iterable(map(dict.values, self._now))
        return sum(map(len, self._now)) == len(self._values) and all(map(is_, values, self._values))

    def __iter__(self) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
        return zip(self._now, self._then, strict=True)


class Twins:
    """The twins of a field that are not in use; as many as solves ever ran at once.

    Taking from a list and adding to it are atomic, so threads need no lock.
    """

    def __init__(self) -> None:
        self._free: list[Twin] = []

    def take(self, field: nn.Module, expansion: Expansion) -> Twin:
        """A twin of the field for one solve."""
        try:
            twin = self._free.pop()
        except IndexError:
            return Twin(field, expansion)
        if not twin.current(field, expansion):
            self._free.clear()  # the others are as old
            return Twin(field, expansion)
        twin.fill()
        return twin

    def give_back(self, twin: Twin) -> None:
        """The solve is over."""
        if twin.finish():
            self._free.append(twin)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return type(self)()

    def __reduce__(self) -> tuple[type[Self], tuple[()]]:
        return type(self), ()
