"""Stacks of kernels in memory, and bases in words."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from continua.basis import Basis


def by_rows(fn: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """A conversion that also takes a stack of images' kernels.

    `model.to(memory_format=torch.channels_last)` refuses five dimensions; on a stack of
    kernels it means each kernel.
    """

    def convert(t: Tensor) -> Tensor:
        try:
            return fn(t)
        except RuntimeError as error:
            if t.dim() != 5 or "channels_last" not in str(error):
                raise
            rows = [fn(row).permute(0, 2, 3, 1) for row in t.unbind(0)]
            return torch.stack(rows).permute(0, 1, 4, 2, 3)

    return convert


def summary(bases: Mapping[str, Basis]) -> str:
    """The bases in use, and how many tensors use each where there are several."""
    counts: dict[Basis, int] = {}
    for basis in bases.values():
        counts[basis] = counts.get(basis, 0) + 1
    if len(counts) == 1:
        return repr(next(iter(counts)))
    return ", ".join(f"{basis!r} for {n}" for basis, n in counts.items()) or "none"
