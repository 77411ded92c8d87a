"""The linear map at the end of a field."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from continua._errors import ModuleError
from continua.block import ODEBlock
from continua.field import tensor
from continua.solve import Euler, Solution

from ._batches import Inputs, record_calls

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
LINEAR = (nn.Linear, *CONVOLUTIONS)


class Evaluation(NamedTuple):
    """One evaluation of a field.

    Attributes:
        x: the input of the final map.
        v: the input of the layer norm behind it; None without one.
        gain: the weight of that norm at this depth; None without one.
    """

    x: Tensor
    v: Tensor | None
    gain: Tensor | None

    def rows(self, rows: slice) -> Evaluation:
        """The same for some samples."""
        return Evaluation(self.x[rows], None if self.v is None else self.v[rows], self.gain)


class FinalMap:
    r"""The last linear or convolutional map that a block's field calls.

    The field is that map's output plus terms that do not depend on it, so a change of the map
    changes the field by as much. Or it ends in a layer norm of such a sum, as layers with the norm
    behind the skip connection do. Which of the two it is, is tried out.

    Args:
        block: the block, in evaluation mode.
        name: of the block, for messages.
        inputs: what the block is called with.
        final: a pattern of the map's name; None takes the last one that is called.

    Attributes:
        weight: the name of its weight in the field.
        bias: the name of its bias; None without one, or if its basis is not that of the weight.
        groups: how many maps it has side by side.
        norm: whether a layer norm stands behind it.
    """

    def __init__(self, block: ODEBlock, name: str, inputs: Inputs, final: str | None = None):
        self._block = block
        where = f"the field of block {name!r}" if name else "the field"
        step = partial(inputs.solve, block, solver=Euler(steps=1))
        self._path, self._norm = self._find(where, step, final)
        self._map = block.field.get_submodule(self._path)
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
        self._probe(where, step)

    def _find(
        self, where: str, step: Callable[[], Solution], final: str | None
    ) -> tuple[str, nn.LayerNorm | None]:
        """The name of the last such module in the order of calls, and a layer norm called last."""
        parts = dict(self._block.field.named_modules())
        kinds = (*LINEAR, nn.LayerNorm)
        known = {name: m for name, m in parts.items() if isinstance(m, kinds) or _is_transposed(m)}
        with record_calls(known) as called:
            step()
        maps = [name for name in called if not isinstance(parts[name], nn.LayerNorm)]
        if final is not None:
            maps = [name for name in maps if fnmatchcase(name, final)]
        if not maps or maps.count(maps[-1]) > 1:
            which = "at its end" if final is None else f"of the name final={final!r}"
            raise ModuleError(
                f"{where} calls no linear or convolutional map exactly once {which}, which "
                "method='fit' needs; compress with method='project'"
            )
        last = parts[called[-1]]
        return maps[-1], last if isinstance(last, nn.LayerNorm) else None

    def _probe(self, where: str, step: Callable[[], Solution]) -> None:
        """Find out what becomes of the map's output; refuse what cannot be fitted."""
        start, end = self._block.span
        plain, given = self._step_with_noise(step)
        noise = _noise(plain) * (1 + plain.std())
        moved, given_moved = self._step_with_noise(step, self._map, noise)
        if _is_near(moved - plain, noise * (end - start)):
            return
        if given and _is_near(given_moved[0] - given[0], noise):
            behind, _ = self._step_with_noise(step, self._norm, noise)
            if _is_near(behind - plain, noise * (end - start)):
                self.norm = True
                return
        raise ModuleError(
            f"method='fit' changes the last linear map of {where}, {self._path!r}, and an "
            "activation, a gain or a norm behind it changes its output before the field ends; name "
            "another map with final=, or compress with method='project' and then heal"
        )

    def _step_with_noise(
        self,
        step: Callable[[], Solution],
        module: nn.Module | None = None,
        noise: Tensor | None = None,
    ) -> tuple[Tensor, list[Tensor]]:
        """A step with noise added to a module's output, and the inputs of the norm at the end."""
        given: list[Tensor] = []
        with ExitStack() as hooks:
            if module is not None and noise is not None:
                hook = module.register_forward_hook(lambda _m, _a, out: _add(out, noise))
                hooks.enter_context(hook)
            if self._norm is not None:
                note = self._norm.register_forward_pre_hook(lambda _m, args: given.append(args[0]))
                hooks.enter_context(note)
            return step().final, given

    @contextmanager
    def evaluations(self) -> Iterator[list[Evaluation]]:
        """The inputs of the map and of the norm behind it at each evaluation, in order."""
        inputs: list[Tensor] = []
        found: list[Evaluation] = []

        def of_map(_m: nn.Module, args: tuple[Any, ...]) -> None:
            inputs.append(args[0]) if self.norm else found.append(Evaluation(args[0], None, None))

        def of_norm(m: Any, args: tuple[Any, ...]) -> None:
            found.append(Evaluation(inputs.pop(), args[0], m.weight))

        with ExitStack() as hooks:
            hooks.enter_context(self._map.register_forward_pre_hook(of_map))
            if self.norm and self._norm is not None:
                hooks.enter_context(self._norm.register_forward_pre_hook(of_norm))
            yield found

    def pairs(self, evaluation: Evaluation, *gaps: Tensor) -> tuple[Tensor, ...]:
        r"""Features `[g, N, d]` and targets `[g, N, o]` for changes of the field at an evaluation.

        Behind the map may be a layer norm, whose output is to change by the gap. Its input v is
        then to become the nearest one that has this output: for :math:`y = (v - m)/\sigma` and the
        target :math:`Y`, the point :math:`m + \langle v - m, Y\rangle Y / \langle Y, Y\rangle`.
        An error there counts :math:`1/\sigma` times at the output. Each of several gaps gives
        targets of its own.
        """
        x = self.features(evaluation.x)
        if evaluation.v is None:
            return x, *map(self.targets, gaps)
        v = evaluation.v - evaluation.v.mean(-1, keepdim=True)
        scale = v.square().mean(-1, keepdim=True).sqrt().clamp(min=1e-12)  # [..., 1]
        rows = self.targets(scale.expand_as(v))[..., :1]
        found = [x / rows]
        for gap in gaps:
            y = v / scale + (gap if evaluation.gain is None else gap / evaluation.gain)
            y = y - y.mean(-1, keepdim=True)
            along = (v * y).sum(-1, keepdim=True) / y.square().sum(-1, keepdim=True)
            found.append(self.targets(along * y - v) / rows)
        return tuple(found)

    def slices(self, z: Tensor) -> Iterator[slice]:
        """Parts of the samples of a state, with features of about half the memory of the state."""
        weight = self._stack()
        size = -(-weight[0, 0].numel() * self.groups // weight.shape[1])
        step = max(1, len(z) // (2 * size))
        return (slice(i, i + step) for i in range(0, len(z), step))

    def _stack(self) -> Tensor:
        """The coefficients of its weight, `[K, o, ...]`; a view."""
        weight = tensor(self._block.field, self.weight)
        return weight.mT if _is_transposed(self._map) else weight

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

    def tensors(self) -> dict[str, Tensor]:
        """Copies of its coefficients."""
        names = [self.weight] if self.bias is None else [self.weight, self.bias]
        return {name: tensor(self._block.field, name).clone() for name in names}

    def set(self, tensors: Mapping[str, Tensor]) -> None:
        """Give it other coefficients, in place."""
        for name, value in tensors.items():
            tensor(self._block.field, name).copy_(value)

    def change(self, rows: Sequence[int], change: Tensor) -> None:
        """Add fitted maps `[g, k * d, o]` to k of the coefficients, in place."""
        weight = self._stack()
        at = torch.tensor(rows, device=weight.device)
        maps = change.reshape(len(change), len(rows), -1, change.shape[-1])  # [g, k, d, o]
        maps = maps.permute(1, 0, 3, 2).flatten(1, 2)  # [k, O, d]
        if self.bias is not None:
            old = tensor(self._block.field, self.bias)
            old.index_add_(0, at, maps[..., -1].to(old))
            maps = maps[..., :-1]
        weight.index_add_(0, at, maps.reshape(weight[at].shape).to(weight))


def _is_transposed(module: nn.Module) -> bool:
    """Whether a module is the linear map of GPT-2, with a weight of `[inputs, outputs]`."""
    kind = type(module)
    return kind.__name__ == "Conv1D" and kind.__module__.partition(".")[0] == "transformers"


def _noise(like: Tensor) -> Tensor:
    """Random numbers of mean 0 and deviation 1, always the same."""
    return torch.randn(like.shape, generator=torch.Generator().manual_seed(0)).to(like)


def _add(out: Tensor, noise: Tensor) -> Tensor:
    return out + noise if out.shape == noise.shape else out + 1


def _is_near(found: Tensor, expected: Tensor) -> bool:
    atol = 1e-2 * float(expected.abs().max())
    return found.shape == expected.shape and torch.allclose(found, expected, rtol=1e-2, atol=atol)


def _windows(conv: nn.Conv1d | nn.Conv2d | nn.Conv3d, x: Tensor) -> Tensor:
    """The window that each output of a convolution sees, `[B, ..., C * k]`, channels first."""
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
