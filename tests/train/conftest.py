"""Settings of the tests of training."""

import gc
import os

import pytest
import torch


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """No test here loses power."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """As the processes that tests start have: other sums end in other bits."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(autouse=True, scope="module")
def frozen():
    """Accelerate collects garbage at each change of size: not all of torch every time."""
    gc.freeze()
    yield
    gc.unfreeze()
