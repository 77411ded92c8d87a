"""Signals over depth: inputs that vary while the state does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, get_args

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from continua._errors import ArgumentError, ShapeError

from ._tensors import real

Kind = Literal["linear", "cubic", "previous"]


class Signal:
    r"""A signal u(s) through given values, to be handed to a block as its control.

    Between two depths it is linear, a cubic with the slopes of neighbouring values
    (Catmull-Rom), or stays at the previous value. Gradients flow to the values. Adaptive solvers
    stop where a linear signal bends and where a held one jumps.

    Args:
        s: T increasing depths that cover the span of the solve.
        values: `[T, ...]`; the signal has the shape `[...]`, a batch first.
        kind: `"linear"`, `"cubic"` or `"previous"`.

    Example:
        >>> signal = Signal([0.0, 1.0], torch.tensor([[0.0], [2.0]]))
        >>> signal(torch.tensor(0.25))
        tensor([0.5000])
    """

    def __init__(self, s: Sequence[float] | Tensor, values: Tensor, kind: Kind = "linear"):
        given = s.detach().cpu() if isinstance(s, Tensor) else s
        try:
            depths = torch.as_tensor(given, dtype=torch.float64, device="cpu")
        except (TypeError, ValueError, RuntimeError):
            raise ArgumentError(f"the depths of a signal are numbers, not {s!r}") from None
        if depths.dim() != 1 or len(depths) < 2:
            raise ArgumentError(
                f"a signal has two or more depths in a row, not a tensor of {list(depths.shape)}"
            )
        if not bool((depths.diff() > 0).all()):
            at = int((~(depths.diff() > 0)).nonzero()[0, 0])
            raise ArgumentError(
                f"the depths of a signal increase, but {depths[at + 1]:g} follows {depths[at]:g}: "
                "sort depths and values, and name no depth twice"
            )
        if not isinstance(values, Tensor) or values.dim() < 1 or len(values) != len(depths):
            shape = list(values.shape) if isinstance(values, Tensor) else type(values).__name__
            raise ShapeError(f"{len(depths)} depths need values [{len(depths)}, ...], not {shape}")
        if not (values.is_floating_point() or values.is_complex()):
            raise ShapeError(
                f"the values of a signal are floating-point, not {values.dtype}; use values.float()"
            )
        if kind not in get_args(Kind):
            raise ArgumentError(f"kind is one of {', '.join(get_args(Kind))}, not {kind!r}")
        self.s, self.values, self.kind = depths, values, kind

    def __repr__(self) -> str:
        return (
            f"Signal({len(self.s)} depths from {self.s[0]:g} to {self.s[-1]:g}, "
            f"values {list(self.values.shape[1:])}, {self.kind!r})"
        )

    @property
    def breakpoints(self) -> tuple[float, ...]:
        """The depths at which the signal jumps or bends."""
        return () if self.kind == "cubic" else tuple(self.s.tolist())

    @property
    def jumps(self) -> tuple[float, ...]:
        """Those at which it jumps."""
        return self.breakpoints if self.kind == "previous" else ()

    def check(self, span: tuple[float, float]) -> None:
        """Refuse a span that the signal does not cover."""
        low, high = sorted(span)
        if low < self.s[0] or high > self.s[-1]:
            raise ArgumentError(
                f"the control is given from depth {self.s[0]:g} to {self.s[-1]:g}, but the solve "
                f"goes from {span[0]:g} to {span[1]:g}: give values for all of it"
            )

    def __call__(self, s: Tensor) -> Tensor:
        """The signal at a depth, a scalar tensor; beyond its ends, the value there."""
        values = self.values
        depths = self.s.to(values.device)
        at = s.detach().to(values.device, torch.float64)
        i = (torch.searchsorted(depths, at, right=True) - 1).clamp(min=0)
        if self.kind == "previous":
            return values.index_select(0, i.reshape(1))[0]
        i = i.clamp(max=len(depths) - 2)
        start, end = depths[i], depths[i + 1]
        precision = real(values.dtype)
        x = ((s.to(values.device, torch.float64) - start) / (end - start)).to(precision).clamp(0, 1)
        a, b = values.index_select(0, torch.stack([i, i + 1])).unbind(0)
        if self.kind == "linear":
            return a + x * (b - a)
        width = (end - start).to(precision)
        p, q = self._slope(i, width), self._slope(i + 1, width)
        return (
            (2 * x**3 - 3 * x**2 + 1) * a
            + (x**3 - 2 * x**2 + x) * p
            + (3 * x**2 - 2 * x**3) * b
            + (x**3 - x**2) * q
        )

    def _slope(self, i: Tensor, width: Tensor) -> Tensor:
        """The slope at a depth by its neighbours, times the width of the interval."""
        low, high = (i - 1).clamp(min=0), (i + 1).clamp(max=len(self.s) - 1)
        before, after = self.values.index_select(0, torch.stack([low, high])).unbind(0)
        depths = self.s.to(self.values.device)
        return (after - before) * (width / (depths[high] - depths[low]).to(width.dtype))


def _flatten(signal: Signal) -> tuple[list[Any], Any]:
    return [signal.values], (signal.s, signal.kind)


def _unflatten(leaves: Any, context: Any) -> Signal:
    made = object.__new__(Signal)
    (made.values,) = leaves
    made.s, made.kind = context
    return made


# So that gradients which evaluate the field again find the values.
pytree.register_pytree_node(Signal, _flatten, _unflatten, serialized_type_name="continua.Signal")
