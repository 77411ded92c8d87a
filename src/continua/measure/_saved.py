"""Counting bytes: what autograd keeps, and what all tensors take."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from functools import partial
from typing import Any, Self

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode


class SavedTensors(saved_tensors_hooks):
    """Counts what autograd keeps for a backward pass of what runs inside, each storage once.

    What it has let go of again does not count, nor do tensors that are held anyway.
    """

    def __init__(self, held: Iterable[Tensor]):
        self._held = storages(held)
        # Storage and bytes of each tensor in the graph, for as long as it is there.
        self._kept: dict[int, tuple[int, int]] = {}
        super().__init__(self._pack, lambda t: t)

    def __enter__(self) -> Self:  # type: ignore[override]
        super().__enter__()
        return self

    @property
    def bytes(self) -> int:
        """What is kept now."""
        return sum(dict(self._kept.values()).values())

    def _pack(self, t: Tensor) -> Tensor:
        cut = t.detach()  # an operator that saves its own result would keep itself alive
        for key, size in storages([t]).items():
            if key not in self._held:
                self._kept[id(cut)] = (key, size)
                weakref.finalize(cut, self._kept.pop, id(cut))
        return cut


class LiveTensors(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Follows the bytes of all tensors that are made inside, and their peak.

    Tensors that are held anyway do not count, nor does the scratch space of a kernel.
    """

    def __init__(self, held: Iterable[Tensor]):
        super().__init__()  # type: ignore[no-untyped-call]
        self.bytes = self.peak = 0
        self._held = storages(held)
        self._alive: dict[int, weakref.ref[torch.UntypedStorage]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        # Nearly every operator returns a tensor, and looking for those in a tree takes its time.
        for t in (out,) if isinstance(out, Tensor) else pytree.tree_leaves(out):
            if isinstance(t, Tensor) and t.layout is torch.strided:
                self._see(t.untyped_storage())
        return out

    def _see(self, storage: torch.UntypedStorage) -> None:
        key, size = storage._cdata, storage.nbytes()
        if key in self._held or key in self._alive:
            return
        self._alive[key] = weakref.ref(storage, partial(self._end, key, size))
        self.bytes += size
        self.peak = max(self.peak, self.bytes)

    def _end(self, key: int, size: int, _: object) -> None:
        del self._alive[key]
        self.bytes -= size


def storages(tensors: Iterable[Tensor]) -> dict[int, int]:
    """The bytes of each storage behind some tensors, by its address; sparse ones have none."""
    found = (t.untyped_storage() for t in tensors if t.layout is torch.strided)
    return {storage._cdata: storage.nbytes() for storage in found}
