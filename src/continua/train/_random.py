"""Random generators: seeds, and their states."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor


def seed(value: int) -> None:
    """Seed every generator that a model may draw its first weights from."""
    random.seed(value)
    np.random.seed(value)
    torch.manual_seed(value)


def mix_seeds(*numbers: int) -> int:
    """One seed made of several numbers."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> 1)


@contextlib.contextmanager
def restored_generators() -> Iterator[None]:
    """Restore the states of all generators at the end."""
    tensors, python = torch_generators(), python_generators()
    try:
        yield
    finally:
        set_generators(tensors, python)


def torch_generators() -> dict[str, Tensor]:
    """The states of torch's generators, by device."""
    states = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        for i, state in enumerate(torch.cuda.get_rng_state_all()):
            states[f"cuda{i}"] = state
    return states


def python_generators() -> dict[str, Any]:
    """The states of Python's and NumPy's generators, ready for JSON."""
    version, key, gauss = random.getstate()
    kind, keys, position, has, cached = np.random.get_state(legacy=True)
    return {
        "random": [version, list(key), gauss],
        "numpy": [kind, np.asarray(keys).tolist(), int(position), int(has), float(cached)],
    }


def set_generators(tensors: dict[str, Tensor], python: dict[str, Any]) -> None:
    """The inverse of `torch_generators` and `python_generators`."""
    torch.set_rng_state(tensors["cpu"])
    if torch.cuda.is_available():
        for i in range(torch.cuda.device_count()):
            if f"cuda{i}" in tensors:
                torch.cuda.set_rng_state(tensors[f"cuda{i}"], i)
    version, key, gauss = python["random"]
    random.setstate((version, tuple(key), gauss))
    kind, keys, position, has, cached = python["numpy"]
    if len(keys) != 624 or not 0 <= position <= 624:  # NumPy does not check it
        raise ValueError("NumPy's generator has 624 numbers and a position among them")
    np.random.set_state((kind, np.array(keys, dtype=np.uint32), position, has, cached))
