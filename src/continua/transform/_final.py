"""The linear map at the end of a field."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from continua._errors import ModuleError
from continua.block import ODEBlock
from continua.solve import Euler

from ._stacking import gain

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
LINEAR = (nn.Linear, *CONVOLUTIONS)


class FinalMap:
    """The last linear or convolutional map that a block's field calls.

    The field must be that map's output plus whatever else, so that a change of the map changes
    the field by as much; this is tried out.

    Args:
        block: whose field is looked at, in evaluation mode.
        name: of the block, for messages.
        args: what the block is called with.
        kwargs: the same, by name.

    Attributes:
        weight: the name of its weight in the field.
        bias: the name of its bias, None if it has none that goes with the weight.
        groups: how many maps it has side by side.
    """

    def __init__(self, block: ODEBlock, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]):
        self._block = block
        where = f"the field of block {name!r}" if name else "the field"
        self._path, self._map = self._last(where, args, kwargs)
        self.weight = f"{self._path}.weight" if self._path else "weight"
        bases = block.expansion.weights
        if self.weight not in bases:
            raise ModuleError(
                f"{where} ends in {self._path!r}, whose weight is frozen, parametrized or tied, so "
                "it cannot be fitted; compress with method='project'"
            )
        bias = self.weight.removesuffix("weight") + "bias"
        self.bias = bias if bases.get(bias) == bases[self.weight] else None
        self.groups = getattr(self._map, "groups", 1)
        self._probe(where, args, kwargs)

    def _last(self, where: str, args: Any, kwargs: Any) -> tuple[str, nn.Module]:
        """The last such module in the order of calls, each called once per evaluation."""
        names = {m: name for name, m in self._block.field.named_modules() if isinstance(m, LINEAR)}
        called: list[str] = []
        handles = [
            m.register_forward_pre_hook(lambda _m, _a, name=name: called.append(name))
            for m, name in names.items()
        ]
        try:
            self._block.solve(*args, solver=Euler(steps=1), **kwargs)
        finally:
            for handle in handles:
                handle.remove()
        if not called or called.count(called[-1]) > 1:
            raise ModuleError(
                f"{where} calls no linear or convolutional map exactly once at its end, which "
                "method='fit' needs; compress with method='project'"
            )
        return called[-1], self._block.field.get_submodule(called[-1])

    def _probe(self, where: str, args: Any, kwargs: Any) -> None:
        """Refuse a field that is not the map's output plus whatever else."""
        start, end = self._block.span
        added: list[Tensor] = []

        def add(_m: nn.Module, _a: Any, out: Tensor) -> Tensor:
            generator = torch.Generator().manual_seed(0)
            noise = torch.randn(out.shape, generator=generator).to(out)
            added.append(noise * out.std() + noise)
            return out + added[0]

        plain = self._block.solve(*args, solver=Euler(steps=1), **kwargs).final
        handle = self._map.register_forward_hook(add)
        try:
            shifted = self._block.solve(*args, solver=Euler(steps=1), **kwargs).final
        finally:
            handle.remove()
        expected = added[0] * (end - start) * gain(self._block)
        if plain.shape != expected.shape or not torch.allclose(
            shifted - plain, expected, rtol=1e-2, atol=1e-2 * float(expected.abs().max())
        ):
            raise ModuleError(
                f"the output of {self._path!r}, the last linear map of {where}, is changed by "
                "other layers before the field ends (a norm, an activation or a gain), so "
                "method='fit' cannot reach it; compress with method='project' and calibrate="
            )

    @contextmanager
    def inputs(self) -> Iterator[list[Tensor]]:
        """What the map is given at each evaluation, in order."""
        found: list[Tensor] = []
        handle = self._map.register_forward_pre_hook(lambda _, args: found.append(args[0]))
        try:
            yield found
        finally:
            handle.remove()

    def features(self, x: Tensor) -> Tensor:
        """What each output is a linear combination of, `[g, N, d]`."""
        if isinstance(self._map, CONVOLUTIONS):
            x = _windows(self._map, x)
        x = x.reshape(-1, self.groups, x.shape[-1] // self.groups).transpose(0, 1)
        if self.bias is None:
            return x
        return torch.cat([x, x.new_ones(*x.shape[:-1], 1)], -1)

    def targets(self, z: Tensor) -> Tensor:
        """Outputs in the order of the features, `[g, N, o]`."""
        if isinstance(self._map, CONVOLUTIONS):
            z = z.movedim(1, -1)
        return z.reshape(-1, self.groups, z.shape[-1] // self.groups).transpose(0, 1)

    def tensors(self, found: Tensor, like: Tensor) -> tuple[Tensor, Tensor]:
        """Weight and bias from fitted maps `[g, d, K, o]`: `[K, ...]` each.

        Args:
            found: the maps.
            like: the coefficients of the weight.
        """
        found = found.permute(2, 0, 3, 1).flatten(1, 2)  # [K, O, d]
        bias = found[..., -1]
        if self.bias is not None:
            found = found[..., :-1]
        return found.reshape(like.shape), bias


def _windows(conv: nn.Module, x: Tensor) -> Tensor:
    """The window that each output of a convolution sees, `[B, ..., C * k]`, channels first."""
    assert isinstance(conv, CONVOLUTIONS)
    mode = "constant" if conv.padding_mode == "zeros" else conv.padding_mode
    x = nn.functional.pad(x, _pads(conv), mode=mode)
    n = len(conv.kernel_size)
    sizes = zip(conv.kernel_size, conv.stride, conv.dilation, strict=True)
    for i, (size, stride, dilation) in enumerate(sizes):
        x = x.unfold(2 + i, (size - 1) * dilation + 1, stride)[..., ::dilation]
    return x.movedim(1, 1 + n).flatten(1 + n)


def _pads(conv: nn.Conv1d | nn.Conv2d | nn.Conv3d) -> list[int]:
    """The padding before and after each dimension, the last one first."""
    pads: list[int] = []
    for i in reversed(range(len(conv.kernel_size))):
        if isinstance(conv.padding, str):
            total = conv.dilation[i] * (conv.kernel_size[i] - 1) if conv.padding == "same" else 0
            pads += [total // 2, total - total // 2]
        else:
            pads += [conv.padding[i]] * 2
    return pads
