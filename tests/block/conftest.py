import pytest
import torch


@pytest.fixture(params=["no_grad", "inference_mode"])
def without_graph(request):
    return getattr(torch, request.param)
