"""The layers at the steps of a block, as a model calls them."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from continua._errors import ArgumentError
from continua.field import Twin, real, slot, tensor, updated, values_at
from continua.solve import Stats

from ._stacking import check_shape, hidden, is_cache, with_hidden

if TYPE_CHECKING:
    from ._layers import LayerBlock, Layout

#: of devices, where two tensors can be asked whether they are the same memory
KINDS = ("cpu", "cuda", "mps")


class Steps:
    """A second tree of modules for every step of a block, with its weights.

    Each is a layer of the original class. All but the tensors, hooks included, is shared with the
    block's field. The tensors are rows of the coefficients, which `refresh` reads again if the
    coefficients are others than before.

    Attributes:
        layers: one behind the other.
    """

    def __init__(self, block: LayerBlock):
        plan, layout = block.plan, block.layout
        assert plan is not None
        self._block, self._start = block, layout.start
        self._samplings, self._inverses = plan.samplings, plan.inverses
        self._slots = {name: slot(block.field, name) for name in block.expansion.bases}
        #: the coefficients whose rows the layers have, their memory, and what is known of them
        self._placed = dict[str, tuple[Tensor, Tensor, object]]()
        self._before: dict[str, Tensor] = {}  #: the state that the layers were given, `[S, ...]`
        self._twins = [Twin(block.field, block.expansion) for _ in plan.points]
        self.layers = list[nn.Module]()
        for i, twin in enumerate(self._twins):
            unit: Any = twin.module.layer
            for part, name, value in layout.settings(i, block.steps):
                vars(unit.get_submodule(part))[name] = value
            if layout.period > 1:
                self.layers += unit
            else:
                self.layers.append(unit)
                if block.steps != layout.units:
                    _shorten(unit, block.width)
        if block.steps != layout.units:
            _check_caches(self.layers[0], layout)
        last = len(self.layers) - 1
        for at in range(0 if block.expansion.state else last, last + 1):
            finish = functools.partial(self._finish, at // layout.period, at == last)
            _call_after(self.layers[at], finish)

    def current(self, block: LayerBlock) -> bool:
        """Whether the layers are those of the block as it is now."""
        moved = self._start != block.layout.start
        return not moved and self._twins[0].current(block.field, block.expansion)

    def refresh(self) -> None:
        """Give every layer its tensors."""
        block, training = self._block, self._block.field.training
        for twin in self._twins:
            twin.fill()
        self._before = {}
        for name, (registry, key) in self._slots.items():
            stack = registry[key]
            assert stack is not None
            if training and name in block.expansion.state:
                self._put(name, self._copy_state(name, stack))
            elif not self._is_placed(name, stack):
                self._put(name, self._values(name, stack))
        for name in block.expansion.carried if training else ():
            count = tensor(block.field, name)
            self._put(name, [count.clone() for _ in self._twins])

    def _is_placed(self, name: str, stack: Tensor) -> bool:
        """Whether the rows of a stack that the layers have are still its rows."""
        # With a graph, rows cannot be used any more once the stack was written to.
        graph = torch.is_grad_enabled() and not stack.is_inference()
        facts = (stack.requires_grad, stack._version if graph else None)
        if known := self._placed.get(name):
            placed, memory, then = known
            if placed is stack and then == facts and stack.is_set_to(memory):
                return True
        basis = self._block.expansion.bases[name]
        if self._samplings[basis].rows is None and stack.device.type in KINDS:
            self._placed[name] = (stack, stack.detach(), facts)
        return False

    def _values(self, name: str, stack: Tensor) -> Sequence[Tensor]:
        """A tensor at each step; views of its coefficients where each step reads a single one."""
        sampling = self._samplings[self._block.expansion.bases[name]]
        if sampling.rows is None:
            rows = stack if torch.is_grad_enabled() else stack.detach()
        else:
            rows = self._sample(name, stack)
        every = rows.unbind(0)
        return [every[i] for i in sampling.index]

    def _sample(self, name: str, stack: Tensor) -> Tensor:
        """A tensor at the distinct depths of the steps, `[R, ...]`."""
        expansion = self._block.expansion
        basis = expansion.bases[name]
        rows = self._samplings[basis].rows
        if rows is not None:
            rows = rows.to(stack.device, real(stack.dtype))
        return values_at({name: basis}, {name: stack}, {basis: rows}, expansion.constraints)[name]

    def _copy_state(self, name: str, stack: Tensor) -> Sequence[Tensor]:
        """State that the layers may write to."""
        self._placed.pop(name, None)
        with torch.no_grad():
            sampling = self._samplings[self._block.expansion.bases[name]]
            values = self._sample(name, stack).index_select(0, sampling.picks.to(stack.device))
            self._before[name] = values.clone()
            return values.unbind(0)

    def _put(self, name: str, values: Sequence[Tensor]) -> None:
        for twin, value in zip(self._twins, values, strict=True):
            twin.put({name: value})

    @torch.no_grad()
    def _finish(self, i: int, last: bool) -> None:
        """A layer of step i was called: update the state as a solve of the block does.

        A model may call some of the layers only, or ask for each anew.
        """
        block, n, twin = self._block, len(self._twins), self._twins[i]
        for name, before in self._before.items():
            sigma, after = tensor(block.field, name), tensor(twin.module, name)
            column = self._inverses[block.expansion.bases[name]][:, i : i + 1].to(sigma.device)
            sigma.copy_(updated(column, sigma, before[i : i + 1], after[None]))
            before[i] = after
        if last:
            width = block.layout.units / n
            block.record(Stats(evaluations=n, steps=n, step_sizes=[width] * n))
            if self._before:
                for name in block.expansion.carried:
                    tensor(block.field, name).copy_(tensor(twin.module, name))


def _shorten(layer: nn.Module, width: float) -> None:
    """Let a layer check that it keeps the shape of the state, and go a part of its way."""
    forward: Callable[..., Any] = layer.forward
    name = next(iter(inspect.signature(forward).parameters))

    @functools.wraps(forward)
    def part(*args: Any, **kwargs: Any) -> Any:
        z = args[0] if args else kwargs[name]
        out = forward(*args, **kwargs)
        end = hidden(out)
        check_shape(layer, z, end)
        return out if width == 1 else with_hidden(out, z + width * (end - z))

    vars(layer)["forward"] = part


def _check_caches(layer: nn.Module, layout: Layout) -> None:
    """Let a layer refuse a cache of more layers than the model has."""
    forward: Callable[..., Any] = layer.forward

    @functools.wraps(forward)
    def checked(*args: Any, **kwargs: Any) -> Any:
        for value in (*args, *kwargs.values()):
            if is_cache(value):
                own = getattr(value, "self_attention_cache", value)
                if len(own.layers) > layout.total:
                    raise ArgumentError(
                        f"the cache has {len(own.layers)} layers and the model {layout.total}: a "
                        "model that was made smaller needs a cache of its own"
                    )
        return forward(*args, **kwargs)

    vars(layer)["forward"] = checked


def _call_after(layer: nn.Module, after: Callable[[], None]) -> None:
    """Let a function be called after each forward of a layer."""
    forward: Callable[..., Any] = layer.forward

    @functools.wraps(forward)
    def with_after(*args: Any, **kwargs: Any) -> Any:
        try:
            return forward(*args, **kwargs)
        finally:  # checkpointing stops a forward that it repeats by an exception
            after()

    vars(layer)["forward"] = with_after
