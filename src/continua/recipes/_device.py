"""The device and the threads of a run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

import continua as ct


def find_device(name: str) -> torch.device:
    """The device of this name, if it is here."""
    if name == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(1, device=device).cpu()
    except (RuntimeError, AssertionError, NotImplementedError):
        # torch's own message is a page of build advice.
        raise ct.ArgumentError(
            f"there is no device {name!r} here; use auto, cpu, or a GPU that torch sees"
        ) from None
    return device


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Torch with this many threads; small images gain nothing from more."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def using(count: int | None) -> Iterator[None]:
    """Torch with this many threads, if a number is given."""
    if count is None:
        yield
        return
    if count < 1:
        raise ct.ArgumentError(f"threads is at least 1, not {count}")
    with threads(count):
        yield
