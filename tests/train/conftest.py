"""Settings of the tests of training."""

import gc
import os

import pytest
import torch


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """No test here loses power, and the models are too small for two threads."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)
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
