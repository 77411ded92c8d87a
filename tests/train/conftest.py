"""Settings of the tests of training."""

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
