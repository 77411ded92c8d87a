"""The list of layers of a model, of which runs are blocks."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from torch import nn

from ._layers import Group, LayerBlock
from ._runs import LayerRun
from ._stacking import with_hidden


class Layers(nn.Module):
    """A list of layers of which runs are blocks.

    The forward of a model iterates over it as over the list that it was: it gives the layers one
    by one, those of a block with the weights at its steps.

    Attributes:
        whole: whether a block is given as one layer that takes all its steps, as those need it
            that follow the states of blocks.
    """

    whole = False

    def __iter__(self) -> Iterator[Any]:
        for module in self._modules.values():
            if not isinstance(module, LayerBlock):
                yield module
            elif self.whole:
                yield _Whole(module)
            else:
                yield from module.layers()

    def __len__(self) -> int:
        modules = self._modules.values()
        return sum(len(m) if isinstance(m, LayerBlock) else 1 for m in modules)

    def __getitem__(self, at: Any) -> Any:
        return list(self)[at]

    def __bool__(self) -> bool:
        return True

    __repr__ = nn.Module.__repr__

    def plain(self, memo: dict[Any, Any], into: nn.Module) -> None:
        """Put plain layers into a list that is empty."""
        made: list[nn.Module | None] = []
        for module in self._modules.values():
            if isinstance(module, LayerBlock):
                made += module.plain_layers(memo)
            else:
                made.append(copy.deepcopy(module, memo))
        for i, layer in enumerate(made):
            into.add_module(str(i), layer)


class LayerList(Layers, nn.ModuleList):
    """An `nn.ModuleList` of which runs are blocks."""


class LayerSequence(Layers, nn.Sequential):
    """An `nn.Sequential` of which runs are blocks."""


class _Whole:
    """A block in the place of its layers: it takes what a layer takes, and returns as much."""

    def __init__(self, block: LayerBlock):
        self._block = block

    def __call__(self, z: Any, *args: Any, **kwargs: Any) -> Any:
        outs: list[Any] = [None]
        layer: Any = self._block.field.layer

        def note(_m: nn.Module, _a: Any, out: Any) -> None:
            outs[0] = out

        handle = layer.register_forward_hook(note)
        try:
            args = tuple(None if _is_cache(a) else a for a in args)
            kwargs = {name: None if _is_cache(a) else a for name, a in kwargs.items()}
            end = self._block(z, *args, **kwargs)
        finally:
            handle.remove()
        return with_hidden(outs[0], end)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._block.layers()[0], name)


def _is_cache(value: Any) -> bool:
    """Whether an argument keeps keys and values per layer, which a block as a whole has not."""
    return any(kind.__name__ == "Cache" for kind in type(value).__mro__)


def lists(model: nn.Module) -> list[Layers]:
    """The lists of a model of which runs are blocks."""
    return [module for module in model.modules() if isinstance(module, Layers)]


def converted(model: nn.Module) -> bool:
    """Whether `convert` has put blocks into lists of the model's layers."""
    return bool(lists(model))


@contextmanager
def as_blocks(*models: nn.Module) -> Iterator[None]:
    """Let models call their blocks as a whole."""
    found = [one for model in models for one in lists(model)]
    for one in found:
        one.whole = True
    try:
        yield
    finally:
        for one in found:
            one.whole = False


def with_blocks(container: nn.Module, runs: Sequence[LayerRun], *, move: bool) -> Layers:
    """A list of layers with blocks in the place of runs."""
    kind = LayerSequence if isinstance(container, nn.Sequential) else LayerList
    made = kind()
    vars(made).update({k: v for k, v in vars(container).items() if k != "_modules"})
    children = list(container._modules.items())
    at = 0
    for run in runs:
        assert run.layout is not None
        for name, child in children[at : run.start]:
            made.add_module(name, child)
        layers: list[Any] = [child for _, child in children[run.start : run.stop]]
        p = run.period
        units = layers if p == 1 else [Group(layers[i : i + p]) for i in range(0, len(layers), p)]
        for unit in units:
            unit.training = layers[0].training
        made.add_module(f"block{run.start}", LayerBlock(units, run.layout, move=move))
        at = run.stop
    for name, child in children[at:]:
        made.add_module(name, child)
    return made
