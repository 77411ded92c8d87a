"""Views of coefficients that are kept from one solve without a graph to the next."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import torch
from torch import Tensor
from torch._C._functorch import is_functorch_wrapped_tensor as wrapped

#: of devices, where two tensors can be asked whether they are the same memory
KINDS = ("cpu", "cuda", "mps")


class Views:
    """The rows of coefficients, and memory for the state of evaluations, of one twin.

    A block of 16 buckets around a residual unit of two convolutions and two batch norms reads 160
    of them. Kept, they save 3 to 4 % of its time on one small image (`python benchmarks/views.py
    --rounds 1000`, 2026-11-18). Views see whatever is written to the coefficients; if these move to
    other memory, they are made again.
    """

    def __init__(self) -> None:
        self._rows: dict[tuple[str, bool], tuple[Tensor, Sequence[Tensor]]] = {}
        self._copies: dict[tuple[str, bool], tuple[Tensor, Sequence[Tensor]]] = {}

    def rows(self, name: str, stack: Tensor) -> Sequence[Tensor]:
        """The coefficients of a tensor one by one."""
        key = (name, torch.is_inference_mode_enabled())
        memory, rows = self._rows.get(key, (None, ()))
        if memory is None or not stack.is_set_to(memory):
            memory = stack.detach()  # whose views keep nothing of the parameter alive
            rows = memory.unbind(0)
            self._rows[key] = memory, rows
        return rows

    def copies(self, name: str, values: Tensor, picks: Tensor) -> Sequence[Tensor]:
        """Some rows of a piece of state, copied to memory that evaluations may write to."""
        key = (name, torch.is_inference_mode_enabled())
        memory, rows = self._copies.get(key, (None, ()))
        shape = (len(picks), *values.shape[1:])
        kind = (shape, values.dtype, values.device)
        if memory is None or (memory.shape, memory.dtype, memory.device) != kind:
            memory = values.new_empty(shape)
            rows = memory.unbind(0)
            self._copies[key] = memory, rows
        torch.index_select(values, 0, picks, out=memory)
        return rows


def may_keep_views(stacks: Collection[Tensor]) -> bool:
    """Whether nothing records what is done with tensors."""
    return (
        not torch.is_grad_enabled()
        and all(stack.device.type in KINDS for stack in stacks)
        and not any(map(wrapped, stacks))
        and torch._C._len_torch_dispatch_stack() == 0
        and not torch.jit.is_tracing()  # type: ignore[attr-defined, no-untyped-call]
    )
