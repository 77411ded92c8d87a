"""What compiled solves store for their backward pass."""

import pytest
import torch
from torch import nn

import continua as ct


@pytest.mark.parametrize("gradient", [ct.Backprop(), ct.Checkpoint(), ct.Adjoint()], ids=str)
def test_what_is_stored_is_freed_and_seen_by_hooks(gradient):
    field = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 3))
    block = ct.ODEBlock(field, ct.Fourier(1), ct.RK4(steps=2), gradient, compile="aot_eager")
    x = torch.randn(4, 3, requires_grad=True)
    y = block(x).sum()
    (first,) = torch.autograd.grad(y, [x])
    with pytest.raises(RuntimeError, match="a second time"):
        torch.autograd.grad(y, [x])
    seen = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: seen.append(t) or t, lambda t: t):
        y = block(x).sum()
    assert len(seen) > 1
    assert torch.equal(torch.autograd.grad(y, [x])[0], first)
