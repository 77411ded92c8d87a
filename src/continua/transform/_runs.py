"""Runs of like layers in a model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from continua._errors import ArgumentError, ModuleError
from continua.block import ODEBlock

from ._differences import all_tensors, differences, varies
from ._layout import is_index, is_rate

#: the lists of layers that are looked into; a class derived from them may do more than hold them
LISTS = (nn.ModuleList, nn.Sequential)
HOLDERS = (*LISTS, nn.ModuleDict)
#: where a run starts and stops in its list, and how many of its layers recur together
Place = tuple[int, int, int]
#: how many layers may recur together
PERIODS = range(1, 9)


@dataclass(frozen=True)
class LayerRun:
    """Layers that follow one another in a model, and whether they can be one block.

    Attributes:
        name: of the list that holds them.
        start: the first of them.
        stop: the one after the last.
        kind: their class.
        parameters: of all of them.
        period: how many recur together, such as 2 for windows that are shifted every second time.
        reason: why they are left out; empty for what `convert` takes.
        ignore: patterns of attributes in which they may differ.
    """

    name: str
    start: int
    stop: int
    kind: str
    parameters: int
    period: int = 1
    reason: str = ""
    ignore: Sequence[str] = field(default=(), repr=False, compare=False)

    def __str__(self) -> str:
        which = f"{self.start}" if self.stop == self.start + 1 else f"{self.start}-{self.stop - 1}"
        groups = f" in groups of {self.period}" if self.period > 1 else ""
        size = f"{self.kind}{groups}, {self.parameters:,} parameters"
        left_out = f"; left out: {self.reason}" if self.reason else ""
        return f"{self.name or 'the model'}[{which}]: {size}{left_out}"


def stacks(model: nn.Module, *, ignore: str | Sequence[str] = ()) -> list[LayerRun]:
    """The runs of like layers that `convert` finds in a model, and what it leaves out and why.

    Every `nn.ModuleList` and `nn.Sequential` is looked into. Layers are alike if they differ in
    the values of weights and state, in an index and in dropout rates alone. Layers that recur in
    pairs, such as those of a Swin stage, are alike two by two.

    Args:
        model: any module; it is not changed.
        ignore: patterns of attributes in which layers may differ.

    Example:
        >>> layer = nn.TransformerEncoderLayer(8, 2, 16)
        >>> print(*stacks(nn.TransformerEncoder(layer, 6, enable_nested_tensor=False)))
        layers[0-5]: TransformerEncoderLayer, 3,600 parameters
    """
    if not isinstance(model, nn.Module):
        raise ArgumentError(f"a model is an nn.Module, not {type(model).__name__}")
    ignored = [ignore] if isinstance(ignore, str) else list(ignore)
    return list(_Finder(model, ignored).find())


def runs_at(
    model: nn.Module, places: Mapping[str, Sequence[Sequence[int]]], ignore: Sequence[str] = ()
) -> list[LayerRun]:
    """Runs that were found before, in another model of the same config.

    There, layers may have been frozen or have been changed by a forward; attributes in which they
    differ here are those of each layer.

    Args:
        model: any module; it is not changed.
        places: by the names of lists, the start, the stop and the period of each run.
        ignore: patterns of attributes in which layers may differ.
    """
    found = []
    for name, own in places.items():
        container, stop = model.get_submodule(name), 0
        layers = list(container._modules.values())
        for place in own:
            if type(container) not in LISTS or not _is_run(place, stop, len(layers)):
                raise ArgumentError(f"{place!r:.60} is no run of like layers in {name!r:.60}")
            start, stop, period = place
            found.append(_make_run(name, layers, (start, stop, period), ignore=ignore))
    return found


def _is_run(place: Sequence[int], after: int, count: int) -> bool:
    """Whether start, stop and period are those of a run after the last one in a list."""
    if len(place) != 3 or any(type(number) is not int for number in place):
        return False
    start, stop, period = place
    return after <= start < stop <= count and period > 0 and (stop - start) % period == 0


def _make_run(
    name: str, layers: Sequence[Any], place: Place, reason: str = "", ignore: Sequence[str] = ()
) -> LayerRun:
    start, stop, period = place
    own = [layer for layer in layers[start:stop] if layer is not None]
    parameters = {p for layer in own for p in layer.parameters()}
    size = sum(p.numel() for p in parameters if not is_lazy(p))
    return LayerRun(name, start, stop, type(own[0]).__name__, size, period, reason, ignore)


class _Finder:
    """Looks for runs, outermost first."""

    def __init__(self, model: nn.Module, ignore: Sequence[str]):
        self._model, self._ignore = model, ignore
        self._uses = _registrations(model.modules())

    def find(self) -> Iterator[LayerRun]:
        """The runs in all lists of the model, those that are left out too."""
        inside = set[nn.Module]()
        for name, module in self._model.named_modules():
            layers: list[Any] = list(module._modules.values())
            if module in inside:
                continue
            if isinstance(module, ODEBlock):
                inside.update(module.modules())
            elif type(module) in LISTS:
                for run in self._runs_in(name, layers):
                    if not run.reason:
                        inside.update(*(layer.modules() for layer in layers[run.start : run.stop]))
                    yield run
            elif isinstance(module, HOLDERS):
                reason = (
                    f"{type(module).__name__} is no plain nn.ModuleList or nn.Sequential, and may "
                    "do more than hold its layers"
                )
                like = [i for i in range(len(layers)) if _has_like_neighbour(layers, i)]
                if like:
                    yield _make_run(name, layers, (like[0], len(layers), 1), reason)

    def _runs_in(self, name: str, layers: Sequence[Any]) -> Iterator[LayerRun]:
        """The runs in a list of layers, in order."""
        start = 0
        while start < len(layers):
            stop, period = start + 1, 1
            for candidate in PERIODS:
                end = self._end_of_run(layers, start, candidate)
                if end > stop:
                    stop, period = end, candidate
                if stop == len(layers):
                    break
            if stop > start + 1:
                reason = self._refusal(layers[start:stop])
                yield _make_run(name, layers, (start, stop, period), reason, self._ignore)
            elif _has_like_neighbour(layers, start):
                other = start if stop < len(layers) else start - 1  # the last has no next
                if reason := self._why_different(layers, other, 1):
                    yield _make_run(name, layers, (start, stop, 1), reason)
            start = stop

    def _end_of_run(self, layers: Sequence[Any], start: int, period: int) -> int:
        """Where a run of at least two units that begins here ends."""
        stop = start
        while stop + period < len(layers) and not self._why_different(layers, stop, period):
            stop += 1
        units = (stop - start) // period + 1
        return start + units * period if units > 1 else start

    def _why_different(self, layers: Sequence[Any], at: int, period: int) -> str:
        """Why a layer and the one a period after it are not alike; empty if they are."""
        one, other = layers[at], layers[at + period]
        both = f"layers {at} and {at + period}"
        if one is None or type(one) is not type(other):
            return f"{both} differ in kind"
        try:
            found = differences(both, one, other, self._ignore)
        except ModuleError as error:
            return str(error)
        for difference in found:
            if not (is_index(difference, period) or is_rate(difference, one, other)):
                return difference.sentence(both)
        return ""

    def _refusal(self, layers: Sequence[nn.Module]) -> str:
        """Why like layers are no block; empty if they are one."""
        first = layers[0]
        kind = type(first).__name__
        if not any(True for _ in first.children()):
            return f"{kind} is a single module and no residual layer; convert([...]) takes a list"
        if type(first) is nn.ModuleList and any(varies(first, *b) for b in first.named_buffers()):
            return f"the model takes each {kind} apart, so that the state in it cannot be followed"
        if not any(varies(first, *p) for p in first.named_parameters()):
            return f"{kind} has no weights that can vary with depth"
        parts = {part for layer in layers for part in layer.modules()}
        if any(isinstance(part, ODEBlock) for part in parts):
            return f"{kind} contains an ODEBlock already"
        inside = _registrations(parts) + Counter(layers)
        for i, layer in enumerate(layers):
            if self._uses[layer] > inside[layer]:
                return f"{kind} {i} is used in another place of the model too"
            for name, value in all_tensors(layer).items():
                if self._uses[value] > inside[value]:
                    return f"{name!r} of {kind} {i} is shared with another part of the model"
        return ""


def _registrations(parts: Iterable[nn.Module]) -> Counter[nn.Module | Tensor]:
    """How often each module and tensor stands in one of these modules."""
    return Counter(
        value
        for part in parts
        for registry in (part._modules, part._parameters, part._buffers)
        for value in registry.values()
        if value is not None
    )


def _has_like_neighbour(layers: Sequence[Any], at: int) -> bool:
    """Whether the next layer or the one before has the same class, so that one may wonder."""
    layer, near = layers[at], [layers[i] for i in (at - 1, at + 1) if 0 <= i < len(layers)]
    if layer is None or type(layer) in LISTS or not any(True for _ in layer.parameters()):
        return False
    return any(type(other) is type(layer) for other in near)
