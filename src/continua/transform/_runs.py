"""Runs of like layers in a model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from continua._errors import ArgumentError, ModuleError
from continua.block import ODEBlock
from continua.field import refuse_unsupported

from ._alike import Difference, all_tensors, compare
from ._counts import counts
from ._layers import Index, Layout
from ._stacking import CONSTANT_ONLY, same_constant, varies

#: the lists of layers that are looked into; a class derived from them may do more than hold them
LISTS = (nn.ModuleList, nn.Sequential)
HOLDERS = (*LISTS, nn.ModuleDict)
#: parts of the names of attributes that count layers
INDICES = ("idx", "index", "layer_id", "layer_num", "seed")
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
    """

    name: str
    start: int
    stop: int
    kind: str
    parameters: int
    period: int = 1
    reason: str = ""
    layout: Layout | None = field(default=None, repr=False, compare=False)

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
    return list(_Finder(model, ignored).found())


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
    finder, found = _Finder(model, ignore), []
    for name, own in places.items():
        container, last = model.get_submodule(name), 0
        for place in own:
            layers = list(container._modules.values())
            if type(container) not in LISTS or not _is_run(layers, last, place):
                raise ArgumentError(f"{place!r:.60} is no run of like layers in {name!r:.60}")
            start, last, period = place
            found.append(finder.run(name, start, last, period))
    return found


def _is_run(layers: Sequence[nn.Module | None], after: int, place: Sequence[int]) -> bool:
    """Whether start, stop and period are those of layers of one class each."""
    if len(place) != 3 or any(type(number) is not int for number in place):
        return False
    start, stop, period = place
    if not (after <= start < stop <= len(layers) and period > 0 and (stop - start) % period == 0):
        return False
    pairs = zip(layers[start:stop], layers[start + period : stop], strict=False)
    return all(type(one) is type(other) for one, other in pairs)


class _Finder:
    """Looks for runs, outermost first."""

    def __init__(self, model: nn.Module, ignore: Sequence[str]):
        self._model, self._ignore = model, ignore
        self._uses: Counter[int] = Counter()  # of modules and tensors, by id
        for module in model.modules():
            children = module._modules.values()
            for value in (*children, *module._parameters.values(), *module._buffers.values()):
                self._uses[id(value)] += 1

    def found(self) -> Iterator[LayerRun]:
        inside: set[int] = set()
        for name, module in self._model.named_modules():
            if id(module) in inside:
                continue
            if isinstance(module, ODEBlock):
                inside |= {id(part) for part in module.modules()}
            elif type(module) in LISTS:
                layers = list(module._modules.values())
                for run in self._runs(name, layers):
                    if not run.reason:
                        own = layers[run.start : run.stop]
                        inside |= {id(part) for one in own if one for part in one.modules()}
                    yield run
            elif isinstance(module, HOLDERS):
                yield from self._unread(name, module)

    def _unread(self, name: str, module: nn.Module) -> Iterator[LayerRun]:
        """A list of a class of its own with two like layers in a row."""
        layers = list(module._modules.values())
        for i, (one, other) in enumerate(pairwise(layers)):
            if one is not None and type(one) is type(other) and self._like_neighbour(layers, i):
                reason = (
                    f"{type(module).__name__} is no plain nn.ModuleList or nn.Sequential, and may "
                    "do more than hold its layers"
                )
                yield self.run(name, i, len(layers), reason=reason)
                return

    def _runs(self, name: str, layers: Sequence[nn.Module | None]) -> Iterator[LayerRun]:
        """What a list of layers holds, in order."""
        at = 0
        while at < len(layers):
            best = (at + 1, 1, "")
            reasons = []
            for period in PERIODS:
                stop, reason = self._extent(layers, at, period)
                reasons.append(reason)
                if stop > best[0] and stop - at >= 2 * period:
                    best = (stop, period, "")
                if best[0] == len(layers):
                    break
            stop, period, reason = best
            own = [layer for layer in layers[at:stop] if layer is not None]
            if stop - at < 2:
                reason = reasons[0]
                if stop == len(layers) > 1:  # the last, which has no next
                    both = f"layers {at - 1} and {at}"
                    reason = self._unlike(both, layers[at - 1], layers[at], 1)
            else:
                reason = self._refused(own)
            if own and (stop - at > 1 or (reason and self._like_neighbour(layers, at))):
                yield self.run(name, at, stop, period, reason)
            at = stop

    def run(self, name: str, start: int, stop: int, period: int = 1, reason: str = "") -> LayerRun:
        """What is known of some layers of a list."""
        layers = list(self._model.get_submodule(name)._modules.values())
        own = [layer for layer in layers[start:stop] if layer is not None]
        parameters = {id(p): p for layer in own for p in layer.parameters()}.values()
        layout = None
        if not reason:
            layout = Layout(start, len(own) // period, period, ignore=self._ignore)
            self._note_settings(own, layout)
            layout.counts = counts(self._model, name, len(layers))
        kind = type(own[0]).__name__
        size = sum(p.numel() for p in parameters if not is_lazy(p))
        return LayerRun(name, start, stop, kind, size, period, reason, layout)

    def _like_neighbour(self, layers: Sequence[nn.Module | None], at: int) -> bool:
        """Whether the next layer or the one before has the same class, so that one may wonder."""
        near = [layers[i] for i in (at - 1, at + 1) if 0 <= i < len(layers)]
        layer = layers[at]
        if layer is None or type(layer) in LISTS or not any(True for _ in layer.parameters()):
            return False
        return any(type(other) is type(layer) for other in near)

    def _extent(
        self, layers: Sequence[nn.Module | None], start: int, period: int
    ) -> tuple[int, str]:
        """Where a run that begins here ends, and why it does not go on."""
        stop, reason = start, ""
        while stop + period < len(layers):
            one, other = layers[stop], layers[stop + period]
            both = f"layers {stop} and {stop + period}"
            reason = self._unlike(both, one, other, period)
            if reason:
                break
            stop += 1
        if stop == start:
            return start + 1, reason
        whole = (stop - start) // period * period + period
        return start + whole, reason

    def _unlike(self, both: str, one: Any, other: Any, step: int) -> str:
        """Why two layers are not alike; empty if they are."""
        if one is None or other is None or type(one) is not type(other):
            return f"{both} differ in kind"
        try:
            for layer in (one, other):
                refuse_unsupported(layer)
            differences = compare(both, one, other, self._ignore)
        except ModuleError as error:
            return str(error)
        for difference in differences:
            if not (_is_index(difference, step) or _is_rate(difference, one, other)):
                return difference.sentence(both)
        theirs = all_tensors(other)
        for key, value in all_tensors(one).items():
            if not _is_function(one, key, value) and not same_constant(
                one, key, value, theirs[key]
            ):
                return f"{both} differ in {key!r}, {CONSTANT_ONLY}"
        return ""

    def _refused(self, layers: list[nn.Module]) -> str:
        """Why like layers are no block; empty if they are one."""
        first = layers[0]
        kind = type(first).__name__
        if not any(True for _ in first.children()):
            return f"{kind} is a single module and no residual layer; convert([...]) takes a list"
        if type(first) is nn.ModuleList and any(
            _is_function(first, name, buffer) for name, buffer in first.named_buffers()
        ):
            return f"the model takes each {kind} apart, so that the state in it cannot be followed"
        if not any(varies(p) for p in first.parameters()):
            return f"{kind} has no weights that can vary with depth"
        own: Counter[int] = Counter(id(layer) for layer in layers)
        for layer in layers:
            if any(isinstance(part, ODEBlock) for part in layer.modules()):
                return f"{kind} contains an ODEBlock already"
        inner: Counter[int] = Counter()
        for part in {id(part): part for layer in layers for part in layer.modules()}.values():
            for value in (*part._parameters.values(), *part._buffers.values()):
                inner[id(value)] += value is not None
        for i, layer in enumerate(layers):
            if self._uses[id(layer)] > own[id(layer)]:
                return f"{kind} {i} is used in another place of the model too"
            for name, value in all_tensors(layer).items():
                if self._uses[id(value)] > inner[id(value)]:
                    return f"{name!r} of {kind} {i} is shared with another part of the model"
        return ""

    def _note_settings(self, layers: list[nn.Module], layout: Layout) -> None:
        """Keep what differs from unit to unit."""
        period = layout.period
        for member in range(period):
            own = layers[member::period]
            prefix = f"{member}." if period > 1 else ""
            paths = {
                d.path: d
                for one, other in pairwise(own)
                for d in compare("layers", one, other, self._ignore)
            }
            for path, difference in paths.items():
                if _is_index(difference, period):
                    layout.indices[prefix + path] = _attribute(own[0], path) - layout.start
                else:
                    # Some models have no dropout where the rate is 0.
                    layout.rates[prefix + path] = [_attribute(layer, path, 0.0) for layer in own]


def indices(layer: nn.Module, at: int) -> list[Index]:
    """The attributes of a layer that say which one of a list it is."""
    return [
        Index(part, name)
        for part in layer.modules()
        for name, value in vars(part).items()
        if type(value) is int and value == at and _counts(name)
    ]


def _counts(name: str) -> bool:
    """Whether an attribute is called like one that counts layers."""
    return any(word in name.lower() for word in INDICES)


def _attribute(layer: nn.Module, path: str, default: Any = None) -> Any:
    part, _, name = path.rpartition(".")
    return getattr(layer.get_submodule(part), name, default)


def _is_index(difference: Difference, step: int) -> bool:
    """Whether an attribute counts layers."""
    path, one, other = difference
    whole = all(isinstance(v, int) and not isinstance(v, bool) for v in (one, other))
    return whole and other - one == step and _counts(path.rpartition(".")[2])


def _is_rate(difference: Difference, *layers: nn.Module) -> bool:
    """Whether an attribute is a rate of dropout."""
    path, one, other = difference
    part = path.rpartition(".")[0]
    owners = [type(layer.get_submodule(part)).__name__ for layer in layers]
    named = "drop" in " ".join([path, *owners]).lower()
    return named and all(type(v) in (int, float) for v in (one, other))


def _is_function(layer: nn.Module, name: str, value: Tensor) -> bool:
    """Whether a tensor of a layer becomes a function of depth."""
    if isinstance(value, nn.Parameter):
        return varies(value)
    path, _, key = name.rpartition(".")
    saved = key not in layer.get_submodule(path)._non_persistent_buffers_set
    return value.is_floating_point() and saved and (value.is_meta or bool(value.isfinite().all()))
