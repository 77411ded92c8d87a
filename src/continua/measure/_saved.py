"""Counting bytes: those that autograd saves, and those of all tensors."""

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
    """Counts the bytes that autograd saves for the backward pass of what runs inside.

    Each storage counts once, until the graph is freed. Tensors that exist anyway do not count.
    """

    def __init__(self, existing: Iterable[Tensor]):
        self._existing = storages(existing)
        # The storage of each tensor in the graph, and its bytes.
        self._kept: dict[int, tuple[int, int]] = {}
        super().__init__(self._pack, lambda t: t)

    def __enter__(self) -> Self:  # type: ignore[override]
        super().__enter__()
        return self

    @property
    def bytes(self) -> int:
        """What is saved now."""
        return sum(dict(self._kept.values()).values())

    def _pack(self, t: Tensor) -> Tensor:
        cut = t.detach()  # an operator that saves its own result would keep itself alive
        for key, size in storages([t]).items():
            if key not in self._existing:
                self._kept[id(cut)] = (key, size)
                weakref.finalize(cut, self._kept.pop, id(cut))
        return cut


class LiveTensors(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the bytes of all tensors that are made inside, and their peak.

    Tensors that exist anyway do not count, nor does the scratch space of a kernel.
    """

    def __init__(self, existing: Iterable[Tensor]):
        super().__init__()  # type: ignore[no-untyped-call]
        self.bytes = self.peak = 0
        self._existing = storages(existing)
        self._alive: dict[int, weakref.ref[torch.UntypedStorage]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for t in pytree.tree_leaves(out):
            if isinstance(t, Tensor) and t.layout is torch.strided:
                self._add(t.untyped_storage())
        return out

    def _add(self, storage: torch.UntypedStorage) -> None:
        key, size = storage._cdata, storage.nbytes()
        if key in self._existing or key in self._alive:
            return
        self._alive[key] = weakref.ref(storage, partial(self._remove, key, size))
        self.bytes += size
        self.peak = max(self.peak, self.bytes)

    def _remove(self, key: int, size: int, _: object) -> None:
        del self._alive[key]
        self.bytes -= size


def storages(tensors: Iterable[Tensor]) -> dict[int, int]:
    """The bytes of each storage behind some tensors, by its address; sparse ones have none."""
    found = (t.untyped_storage() for t in tensors if t.layout is torch.strided)
    return {storage._cdata: storage.nbytes() for storage in found}


def total_bytes(tensors: Iterable[Tensor]) -> int:
    """The bytes of the storages behind some tensors."""
    return sum(storages(tensors).values())
