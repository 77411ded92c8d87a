"""Batches of inputs without labels, and calls of a model with one of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.data import RandomSampler

from continua._errors import ArgumentError, ModuleError, ShapeError
from continua.block import ODEBlock
from continua.solve import Solution

#: what a model raises when it is called with something that it does not take
REFUSALS = (TypeError, ValueError, RuntimeError, IndexError, AttributeError)

#: one batch in so many is held back
SHARE = 4


def held_back(i: int) -> bool:
    """Whether batch i is held back, to choose by."""
    return i % SHARE == 1


class Batches:
    """Batches that can be read again and again, each checked when it is read.

    A list or an iterator is checked as a whole at once. Of anything else, such as a `DataLoader`,
    the first batches are checked at once and the others when they come. Where batches are held
    back, a `DataLoader` that shuffles is read once and its batches kept.

    Args:
        model: called once with each shape, in evaluation mode.
        batches: each what the model is called with: a tensor, a list or tuple of arguments, or a
            dictionary of arguments by name.
        least: the smallest number of batches; 2 if some are held back.
        name: of the argument, for messages.
    """

    def __init__(
        self, model: nn.Module, batches: Iterable[Any], least: int = 1, name: str = "batches"
    ):
        self._batches = _readable(batches, least, name)
        self._of = "" if name == "batches" else f" of {name}"
        self._device = next((p.device for p in model.parameters()), torch.device("cpu"))
        self._model, self._shapes = model, set[tuple[torch.Size, ...]]()
        self._first: list[Tensor] | None = None
        count = 0
        for _ in self:
            count += 1
            if count >= least and not isinstance(self._batches, Sequence):
                break
        if count < least:
            raise ArgumentError(
                f"{name} has {count or 'no'} batch{'es' * (count != 1)} of inputs, where at least "
                f"{least} {'is' if least == 1 else 'are'} needed"
            )

    @property
    def repeatable(self) -> bool:
        """Whether every reading gives the same batches."""
        return isinstance(self._batches, list | tuple)

    def __iter__(self) -> Iterator[Any]:
        for i, batch in enumerate(self._batches):
            where = f"batch {i}{self._of}"
            if not isinstance(batch, Tensor | list | tuple | Mapping):
                raise ArgumentError(
                    f"{where} is a {type(batch).__name__}; a batch is a tensor, or a tuple or "
                    "dictionary of what the model is called with"
                )
            leaves = tensors_in(batch)
            self._check(where, leaves)
            batch = tree_map(lambda x: x.to(self._device) if isinstance(x, Tensor) else x, batch)
            shapes = tuple(leaf.shape[1:] for leaf in leaves)
            if shapes not in self._shapes:
                _try_call(self._model, batch, where)
                self._shapes.add(shapes)
            yield batch

    def _check(self, where: str, leaves: list[Tensor]) -> None:
        for leaf in leaves:
            if leaf.numel() == 0:
                raise ShapeError(f"{where} is empty, of shape {list(leaf.shape)}; leave it out")
            if leaf.is_floating_point() and not bool(leaf.isfinite().all()):
                raise ArgumentError(f"{where} contains NaN or infinity")
        if self._first is None:
            self._first = leaves
        kinds, first = ([(x.dtype, x.dim()) for x in xs] for xs in (leaves, self._first))
        if kinds != first:
            raise ShapeError(
                f"{where} is {_describe(leaves)}, batch 0 is {_describe(self._first)}; all batches "
                "have one dtype, and one shape but for sizes that the model leaves open"
            )


def call(model: nn.Module, batch: Any) -> Any:
    """The output of a model for a batch."""
    if isinstance(batch, Mapping):
        return model(**batch)
    return model(*batch) if isinstance(batch, list | tuple) else model(batch)


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """A model in evaluation mode; each part has its own mode again afterwards."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode


class _StopError(Exception):
    """Ends a forward early."""


class Inputs(NamedTuple):
    """What a block is called with: positional arguments, the state first, and those by name."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def solve(self, block: ODEBlock, **options: Any) -> Solution:
        """The solution of a block; the options are those of its `solve`."""
        return block.solve(*self.args, **self.kwargs | options)

    def with_state(self, z: Tensor) -> Inputs:
        """The same with another state."""
        return Inputs((z, *self.args[1:]), self.kwargs)


def inputs_of(model: nn.Module, block: ODEBlock, batch: Any) -> Inputs:
    """What a model calls a block with; the forward of the model ends there."""
    found: list[Inputs] = []

    def stop(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        found.append(Inputs(args, kwargs))
        raise _StopError

    with block.register_forward_pre_hook(stop, with_kwargs=True), suppress(_StopError):
        call(model, batch)
    if not found:
        raise ModuleError("the forward of the model does not call one of its blocks")
    return found[0]


@contextmanager
def record_calls(modules: Mapping[str, nn.Module]) -> Iterator[list[str]]:
    """The names of modules in the order in which they are called."""
    called: list[str] = []
    with ExitStack() as hooks:
        for name, module in modules.items():
            hook = module.register_forward_pre_hook(lambda _m, _a, name=name: called.append(name))
            hooks.enter_context(hook)
        yield called


@contextmanager
def replace_forward(module: nn.Module, forward: Callable[..., Any]) -> Iterator[None]:
    """A module that computes something else for a while."""
    vars(module)["forward"] = forward
    try:
        yield
    finally:
        del vars(module)["forward"]


def relative_error(found: Any, target: Any) -> Tensor:
    """The mean square of a difference, relative to that of the target; not in half precision."""
    gaps = []
    for a, b in zip(comparable(found), comparable(target), strict=True):
        size = b.abs().square().mean()
        gaps.append((a - b).abs().square().mean() / size.clamp(min=torch.finfo(size.dtype).tiny))
    if not gaps:
        raise ArgumentError("the outputs have no real or complex numbers that could be compared")
    return torch.stack(gaps).sum()


def comparable(outputs: Any) -> list[Tensor]:
    """The real and complex tensors of some outputs, in single precision at least."""
    return [
        leaf.to(torch.promote_types(leaf.dtype, torch.float32))
        for leaf in tensors_in(outputs)
        if leaf.is_floating_point() or leaf.is_complex()
    ]


def tensors_in(tree: Any) -> list[Tensor]:
    """All tensors in nested containers."""
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]


def _describe(leaves: Sequence[Tensor]) -> str:
    """Shapes and dtypes in words."""
    kinds = (f"{list(x.shape)} in {str(x.dtype).removeprefix('torch.')}" for x in leaves)
    return " and ".join(kinds) or "without a tensor"


def _readable(batches: Iterable[Any], least: int, name: str) -> Iterable[Any]:
    """The batches, as a list if another reading would give none or others."""
    if isinstance(batches, Tensor):
        raise ArgumentError(
            f"{name} is a list of batches, not one tensor of shape {list(batches.shape)}; "
            f"split it: x.split({max(1, min(64, len(batches) // 4))})"
        )
    if isinstance(batches, str | bytes | Mapping) or not isinstance(batches, Iterable):
        raise ArgumentError(
            f"{name} is a list, a DataLoader or another iterable, not {type(batches).__name__}"
        )
    # Batches are held back by their place, so another order each time would mix them up.
    shuffled = isinstance(getattr(batches, "sampler", None), RandomSampler) and least > 1
    return list(batches) if shuffled or isinstance(batches, Iterator) else batches


@torch.no_grad()
def _try_call(model: nn.Module, batch: Any, where: str) -> None:
    try:
        with evaluating(model):
            call(model, batch)
    except REFUSALS as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ArgumentError(
            f"{where}: the model refuses {_describe(tensors_in(batch))} ({reason}); "
            "a batch is what the model is called with, without labels"
        ) from error
