"""Lists of layers in which blocks stand in the place of layers."""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from continua._errors import ModuleError

from ._counts import beside, counts
from ._layers import Group, LayerBlock
from ._layout import Index, Layout, indices
from ._runs import LayerRun
from ._stacking import is_cache, with_hidden


class Layers(nn.Module):
    """A list of layers, some of which are steps of blocks.

    The model iterates over it as over the list that it was: a block gives one layer for each of
    its steps.

    Attributes:
        whole: True gives each block as one layer that takes all its steps.
    """

    whole = False

    def __iter__(self) -> Iterator[Any]:
        total = len(self)
        for module in self._modules.values():
            if not isinstance(module, LayerBlock):
                yield module
            elif self.whole:
                yield BlockAsLayer(module)
            else:
                if module.layout.total != total:
                    module.layout.total = total
                yield from module.layers()

    def __len__(self) -> int:
        modules = self._modules.values()
        return sum(len(m) if isinstance(m, LayerBlock) else 1 for m in modules)

    def __getitem__(self, at: Any) -> Any:
        layers = list(self)
        try:
            return layers[at]
        except IndexError:
            raise IndexError(
                f"layer {at} is asked for, and there are {len(layers)}: the model counts its "
                "layers itself, and that number has to change with them"
            ) from None

    __repr__ = nn.Module.__repr__

    def plain_layers(self, memo: dict[Any, Any]) -> dict[str, nn.Module | None]:
        """Copies of the layers by name, without blocks.

        Args:
            memo: of a deep copy of the model, whose objects they share.
        """
        made: list[tuple[str, nn.Module | None]] = []
        for name, module in self._modules.items():
            if isinstance(module, LayerBlock):
                made += zip(module.layout.names, module.plain_layers(memo), strict=False)
            else:
                made.append((name, copy.deepcopy(module, memo)))
        numbered = all(name.isdigit() for name, _ in made)
        return {str(i) if numbered else name: layer for i, (name, layer) in enumerate(made)}


class LayerList(Layers, nn.ModuleList):
    """An `nn.ModuleList` with blocks."""


class LayerSequence(Layers, nn.Sequential):
    """An `nn.Sequential` with blocks."""


class BlockAsLayer:
    """A block that takes what a layer takes and returns what its last layer returns."""

    def __init__(self, block: LayerBlock):
        self._block = block

    def __call__(self, z: Any, *args: Any, **kwargs: Any) -> Any:
        outs = deque[Any](maxlen=1)
        layer: Any = self._block.field.layer
        handle = layer.register_forward_hook(lambda _module, _args, out: outs.append(out))
        try:
            args = tuple(None if is_cache(a) else a for a in args)
            kwargs = {name: None if is_cache(a) else a for name, a in kwargs.items()}
            end = self._block(z, *args, **kwargs)
            if not outs:  # the fit of layers puts something else in the block's place
                self._block.slope(self._block.span[0], z, *args, **kwargs)
        finally:
            handle.remove()
        return with_hidden(outs[-1], end)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._block.layers()[0], name)

    def __iter__(self) -> Iterator[Any]:
        kind = type(self._block.field.layer).__name__
        raise ModuleError(
            f"the model takes each {kind} apart and calls its parts itself; only layers that it "
            "calls can be run as one block, as fit and heal do"
        )


def layer_lists(model: nn.Module) -> dict[str, Layers]:
    """The lists of a model's layers that have blocks, by name."""
    return {name: part for name, part in model.named_modules() if isinstance(part, Layers)}


def converted(model: nn.Module) -> bool:
    """Whether `convert` has put blocks into lists of the model's layers."""
    return bool(layer_lists(model))


@contextmanager
def as_blocks(*models: nn.Module) -> Iterator[None]:
    """Let models call each of their blocks as one layer."""
    found = [one for model in models for one in layer_lists(model).values()]
    fast = torch.backends.mha.get_fastpath_enabled()
    for one in found:
        one.whole = True
    if found:  # encoders of torch would nest padded batches, and solvers take plain tensors
        torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
        for one in found:
            one.whole = False


def list_with_blocks(
    model: nn.Module, name: str, runs: Sequence[LayerRun], taken: Container[str]
) -> Layers:
    """A list of a model's layers with blocks in the place of runs.

    Args:
        model: any module.
        name: of the list.
        runs: in the list, in order. Their layers give up their memory.
        taken: the names of all lists in which layers become blocks.
    """
    container = model.get_submodule(name)
    made = LayerSequence() if isinstance(container, nn.Sequential) else LayerList()
    vars(made).update({k: v for k, v in vars(container).items() if k != "_modules"})
    names, layers = list(container._modules), list[Any](container._modules.values())
    ends = {run.stop: run for run in runs}
    parts: list[tuple[str, Any]] = []  # from the last to the first
    behind: list[Layout | Index] = []
    at = len(layers)
    while at > 0:
        if run := ends.get(at):
            at = run.start
            layout = Layout(
                start=at,
                units=(run.stop - at) // run.period,
                period=run.period,
                ignore=run.ignore,
                names=names[at : run.stop],
                counts=counts(model, name, len(layers)),
                beside=beside(model, name, len(layers), taken),
                behind=tuple(behind),
            )
            parts.append((f"block{at}", _block(layers[at : run.stop], layout)))
            behind.append(layout)
        else:
            at -= 1
            parts.append((names[at], layers[at]))
            behind += [] if layers[at] is None else indices(layers[at], at)
    for part, module in reversed(parts):
        made.add_module(part, module)
    return made


def _block(layers: list[nn.Module], layout: Layout) -> LayerBlock:
    """The layers of a run as a block."""
    layout.read_settings(layers)
    if (period := layout.period) == 1:
        return LayerBlock(layers, layout)
    groups = [Group(layers[i : i + period]) for i in range(0, len(layers), period)]
    for group in groups:
        group.training = layers[0].training
    return LayerBlock(groups, layout)
