"""The layers at the steps of a block, as a model calls them."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from continua._errors import ArgumentError
from continua.field import Twin, real, slot, tensor, updated, values_at
from continua.solve import Stats

from ._stacking import check_shape, hidden, is_cache, with_hidden

if TYPE_CHECKING:
    from ._layers import LayerBlock
    from ._layout import Layout

#: of devices, where two tensors can be asked whether they are the same memory
KINDS = ("cpu", "cuda", "mps")


class Steps:
    """A second tree of modules for every step of a block, with its weights.

    Each is a layer of the original class. All but the tensors, hooks included, is shared with the
    block's field; the tensors are rows of the coefficients, which are read again if these are
    others than before.

    Attributes:
        layers: one behind the other.
    """

    def __init__(self, block: LayerBlock):
        self._block, self._known = block, dict[str, tuple[Tensor, Tensor, object]]()
        plan = block.plan
        assert plan is not None
        self._samplings, self._inverses = plan.samplings, plan.inverses
        self._twins = [Twin(block.field, block.expansion) for _ in plan.points]
        self._before: dict[str, Tensor] = {}
        self._seen = {name: slot(block.field, name) for name in block.expansion.bases}
        layout, self.layers = block.layout, list[nn.Module]()
        self._start = layout.start
        for i, twin in enumerate(self._twins):
            unit: Any = twin.module.layer
            for part, name, value in layout.settings(i, block.steps):
                vars(unit.get_submodule(part))[name] = value
            own = list(unit) if layout.period > 1 else [unit]
            if layout.period == 1 and block.steps != layout.units:
                _reshape(unit, block.width)
            self.layers += own
        if block.steps != layout.units:
            _check_caches(self.layers[0], layout)
        last = len(self.layers) - 1
        for at in range(0 if block.expansion.state else last, last + 1):
            follow = functools.partial(self._finish, at // layout.period, at == last)
            _followed(self.layers[at], follow)

    def current(self, block: LayerBlock) -> bool:
        """Whether the layers are those of the block as it is now."""
        moved = self._start != block.layout.start
        return not moved and self._twins[0].current(block.field, block.expansion)

    def refresh(self) -> None:
        """Give every layer its tensors."""
        block = self._block
        for twin in self._twins:
            twin.fill()
        training = block.field.training
        self._before = {}
        for name, basis in block.expansion.bases.items():
            registry, key = self._seen[name]
            stack = registry[key]
            assert stack is not None
            if training and name in block.expansion.state:
                self._place(name, self._copies(name, stack))
            elif not self._same(name, stack):
                sampling = self._samplings[basis]
                if sampling.rows is None:
                    kept = stack if torch.is_grad_enabled() else stack.detach()
                    rows = kept.unbind(0)
                else:
                    rows = self._sampled(name, stack).unbind(0)
                self._place(name, [rows[i] for i in sampling.index])
        if training:
            for name in block.expansion.carried:
                count = tensor(block.field, name)
                self._place(name, [count.clone() for _ in self._twins])

    def _same(self, name: str, stack: Tensor) -> bool:
        """Whether the rows of a stack that the layers have are still its rows."""
        basis = self._block.expansion.bases[name]
        # With a graph, rows cannot be used any more once the stack was written to.
        graph = torch.is_grad_enabled() and not stack.is_inference()
        facts = (stack.requires_grad, stack._version if graph else None)
        known = self._known.get(name)
        same = known is not None and known[0] is stack and known[2] == facts
        if known is not None and same and stack.is_set_to(known[1]):
            return True
        if self._samplings[basis].rows is None and stack.device.type in KINDS:
            self._known[name] = (stack, stack.detach(), facts)
        return False

    def _sampled(self, name: str, stack: Tensor) -> Tensor:
        """A tensor at the distinct depths of the steps, `[R, ...]`."""
        expansion = self._block.expansion
        basis = expansion.bases[name]
        rows = self._samplings[basis].rows
        if rows is not None:
            rows = rows.to(stack.device, real(stack.dtype))
        return values_at({name: basis}, {name: stack}, {basis: rows}, expansion.constraints)[name]

    def _copies(self, name: str, stack: Tensor) -> list[Tensor]:
        """State that the layers may write to."""
        self._known.pop(name, None)
        with torch.no_grad():
            sampling = self._samplings[self._block.expansion.bases[name]]
            values = self._sampled(name, stack).index_select(0, sampling.picks.to(stack.device))
            self._before[name] = values.clone()
            return list(values.unbind(0))

    def _place(self, name: str, values: list[Tensor]) -> None:
        for twin, value in zip(self._twins, values, strict=True):
            for registry, key in twin.slots[name]:
                registry[key] = value

    @torch.no_grad()
    def _finish(self, i: int, last: bool) -> None:
        """A layer of step i was called: update the state as a solve of the block does.

        A model may call some of the layers only, or ask for each anew.
        """
        block, n, twin = self._block, len(self._twins), self._twins[i]
        for name, before in self._before.items():
            sigma, after = tensor(block.field, name), _held(twin, name)
            column = self._inverses[block.expansion.bases[name]][:, i : i + 1].to(sigma.device)
            sigma.copy_(updated(column, sigma, before[i : i + 1], after[None]))
            before[i] = after
        if last:
            width = block.layout.units / n
            block.record(Stats(evaluations=n, steps=n, step_sizes=[width] * n))
            if self._before:
                for name in block.expansion.carried:
                    tensor(block.field, name).copy_(_held(twin, name))


def _held(twin: Twin, name: str) -> Tensor:
    registry, key = twin.slots[name][0]
    value = registry[key]
    assert value is not None
    return value


def _reshape(layer: nn.Module, width: float) -> None:
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


def _followed(layer: nn.Module, after: Callable[[], None]) -> None:
    """Let a function be called after each forward of a layer."""
    forward: Callable[..., Any] = layer.forward

    @functools.wraps(forward)
    def followed(*args: Any, **kwargs: Any) -> Any:
        try:
            return forward(*args, **kwargs)
        finally:  # checkpointing stops a forward that it repeats by an exception
            after()

    vars(layer)["forward"] = followed
