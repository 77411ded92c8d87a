"""The linear map at the end of a field."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from continua._errors import ModuleError
from continua.block import ODEBlock
from continua.field import tensor
from continua.solve import Euler

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
LINEAR = (nn.Linear, *CONVOLUTIONS)


class Seen(NamedTuple):
    """One evaluation of a field.

    Attributes:
        x: what the final map is given.
        v: what the layer norm behind it is given; None without one.
        gain: the weight of that norm at this depth; None without one.
    """

    x: Tensor
    v: Tensor | None
    gain: Tensor | None

    def rows(self, rows: slice) -> Seen:
        """The same for some samples."""
        return Seen(self.x[rows], None if self.v is None else self.v[rows], self.gain)


class FinalMap:
    r"""The last linear or convolutional map that a block's field calls.

    The field is that map's output plus whatever else, so that a change of the map changes the
    field by as much. Or it ends in a layer norm of such a sum, as layers with the norm behind the
    skip connection do. Which of both is tried out.

    Args:
        block: whose field is looked at, in evaluation mode.
        name: of the block, for messages.
        args: what the block is called with.
        kwargs: the same, by name.
        final: a pattern of the map's name; None takes the last one that is called.

    Attributes:
        weight: the name of its weight in the field.
        bias: the name of its bias, None if it has none that goes with the weight.
        groups: how many maps it has side by side.
        norm: whether a layer norm stands behind it.
    """

    def __init__(
        self,
        block: ODEBlock,
        name: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        final: str | None = None,
    ):
        self._block = block
        where = f"the field of block {name!r}" if name else "the field"
        self._path, self._map, self._norm = self._last(where, args, kwargs, final)
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
        self.norm = False
        self._probe(where, args, kwargs)

    def _last(
        self, where: str, args: Any, kwargs: Any, final: str | None
    ) -> tuple[str, nn.Module, nn.Module | None]:
        """The last such module in the order of calls, and the layer norm called after it."""
        kinds = (*LINEAR, nn.LayerNorm)
        parts = self._block.field.named_modules()
        names = {m: name for name, m in parts if isinstance(m, kinds) or _transposed(m)}
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
        find = self._block.field.get_submodule
        maps = [name for name in called if not isinstance(find(name), nn.LayerNorm)]
        if final is not None:
            maps = [name for name in maps if fnmatchcase(name, final)]
        if not maps or maps.count(maps[-1]) > 1:
            which = "at its end" if final is None else f"of the name final={final!r}"
            raise ModuleError(
                f"{where} calls no linear or convolutional map exactly once {which}, which "
                "method='fit' needs; compress with method='project'"
            )
        norm = find(called[-1]) if called[-1] not in maps else None
        return maps[-1], find(maps[-1]), norm if isinstance(norm, nn.LayerNorm) else None

    def _probe(self, where: str, args: Any, kwargs: Any) -> None:
        """Find out what becomes of the map's output; refuse what cannot be fitted."""
        start, end = self._block.span
        plain, given = self._shifted(None, args, kwargs)
        noise = _noise(plain) * (1 + plain.std())
        moved, given_moved = self._shifted(self._map, args, kwargs, noise)
        if _near(moved - plain, noise * (end - start)):
            return
        if given and _near(given_moved[0] - given[0], noise):
            behind, _ = self._shifted(self._norm, args, kwargs, noise)
            if _near(behind - plain, noise * (end - start)):
                self.norm = True
                return
        raise ModuleError(
            f"method='fit' changes the last linear map of {where}, {self._path!r}, and an "
            "activation, a gain or a norm behind it changes its output before the field ends; name "
            "another map with final=, or compress with method='project' and then heal"
        )

    def _shifted(
        self, module: nn.Module | None, args: Any, kwargs: Any, noise: Tensor | None = None
    ) -> tuple[Tensor, list[Tensor]]:
        """A step with noise added to a module's output, and what the norm at the end is given."""
        given: list[Tensor] = []
        handles = []
        if module is not None and noise is not None:
            handles.append(module.register_forward_hook(lambda _m, _a, out: _added(out, noise)))
        if self._norm is not None:
            handles.append(
                self._norm.register_forward_pre_hook(lambda _m, args: given.append(args[0]))
            )
        try:
            return self._block.solve(*args, solver=Euler(steps=1), **kwargs).final, given
        finally:
            for handle in handles:
                handle.remove()

    @contextmanager
    def evaluations(self) -> Iterator[list[Seen]]:
        """What the map and the norm behind it are given at each evaluation, in order."""
        inputs: list[Tensor] = []
        found: list[Seen] = []

        def of_map(_m: nn.Module, args: tuple[Any, ...]) -> None:
            inputs.append(args[0]) if self.norm else found.append(Seen(args[0], None, None))

        def of_norm(m: Any, args: tuple[Any, ...]) -> None:
            found.append(Seen(inputs.pop(), args[0], m.weight))

        handles = [self._map.register_forward_pre_hook(of_map)]
        if self.norm and self._norm is not None:
            handles.append(self._norm.register_forward_pre_hook(of_norm))
        try:
            yield found
        finally:
            for handle in handles:
                handle.remove()

    def pairs(self, seen: Seen, *gaps: Tensor) -> tuple[Tensor, ...]:
        r"""Features `[g, N, d]` and targets `[g, N, o]` for changes of the field at an evaluation.

        Behind the map may be a layer norm, whose output is to change by the gap. Its input v is
        then to become the nearest one that has this output: for :math:`y = (v - m)/\sigma` and the
        wanted :math:`Y`, the point :math:`m + \langle v - m, Y\rangle Y / \langle Y, Y\rangle`.
        An error there counts :math:`1/\sigma` times at the output.

        Args:
            seen: the evaluation.
            gaps: what the field lacks there, for one target or several.
        """
        x = self.features(seen.x)
        if seen.v is None:
            return x, *map(self.targets, gaps)
        v = seen.v - seen.v.mean(-1, keepdim=True)
        scale = v.square().mean(-1, keepdim=True).sqrt().clamp(min=1e-12)  # [..., 1]
        rows = self.targets(scale.expand_as(v))[..., :1]
        found = [x / rows]
        for gap in gaps:
            y = v / scale + (gap if seen.gain is None else gap / seen.gain)
            y = y - y.mean(-1, keepdim=True)
            along = (v * y).sum(-1, keepdim=True) / y.square().sum(-1, keepdim=True)
            found.append(self.targets(along * y - v) / rows)
        return tuple(found)

    def slices(self, z: Tensor) -> Iterator[slice]:
        """Parts of the samples of a state whose features take about half the memory it does."""
        weight = self._stack()
        size = -(-weight[0, 0].numel() * self.groups // weight.shape[1])
        step = max(1, len(z) // (2 * size))
        return (slice(i, i + step) for i in range(0, len(z), step))

    def _stack(self) -> Tensor:
        """The coefficients of its weight, `[K, o, ...]`; a view."""
        weight = tensor(self._block.field, self.weight)
        return weight.mT if _transposed(self._map) else weight

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

    @contextmanager
    def changed(self, rows: Sequence[int], change: Tensor) -> Iterator[None]:
        """Another map for a while.

        Args:
            rows: whose coefficients change.
            change: by how much, as `change` takes it.
        """
        before = self.tensors()
        try:
            self.change(rows, change)
            yield
        finally:
            self.set(before)

    def tensors(self) -> dict[str, Tensor]:
        """Copies of its coefficients."""
        names = [self.weight] if self.bias is None else [self.weight, self.bias]
        return {name: tensor(self._block.field, name).clone() for name in names}

    def set(self, tensors: Mapping[str, Tensor]) -> None:
        """Give it other coefficients, in place."""
        for name, value in tensors.items():
            tensor(self._block.field, name).copy_(value)

    def change(self, rows: Sequence[int], change: Tensor) -> None:
        """Add to the coefficients of the map, in place.

        Args:
            rows: to which.
            change: fitted maps `[g, k * d, o]` for these.
        """
        weight = self._stack()
        at = torch.tensor(rows, device=weight.device)
        maps = change.reshape(len(change), len(rows), -1, change.shape[-1])  # [g, k, d, o]
        maps = maps.permute(1, 0, 3, 2).flatten(1, 2)  # [k, O, d]
        if self.bias is not None:
            old = tensor(self._block.field, self.bias)
            old.index_add_(0, at, maps[..., -1].to(old))
            maps = maps[..., :-1]
        weight.index_add_(0, at, maps.reshape(weight[at].shape).to(weight))


def _transposed(module: nn.Module) -> bool:
    """Whether a module is the linear map of GPT-2, with a weight of `[inputs, outputs]`."""
    kind = type(module)
    return kind.__name__ == "Conv1D" and kind.__module__.partition(".")[0] == "transformers"


def _noise(like: Tensor) -> Tensor:
    """Random numbers of mean 0 and deviation 1, always the same."""
    return torch.randn(like.shape, generator=torch.Generator().manual_seed(0)).to(like)


def _added(out: Tensor, noise: Tensor) -> Tensor:
    return out + noise if out.shape == noise.shape else out + 1


def _near(found: Tensor, expected: Tensor) -> bool:
    atol = 1e-2 * float(expected.abs().max())
    return found.shape == expected.shape and torch.allclose(found, expected, rtol=1e-2, atol=atol)


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
