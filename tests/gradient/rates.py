"""Numbers and a field with a known solution, for the tests of `odeint`."""

import functools

import torch
from torch import Tensor, nn

close = functools.partial(torch.testing.assert_close, rtol=1e-4, atol=1e-6)


def doubles(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def number(value: float) -> Tensor:
    return torch.tensor(value, dtype=torch.float64, requires_grad=True)


class Rate(nn.Module):
    """dz/ds = w cos(s) z, so z(s) = x exp(w sin s)."""

    def __init__(self, w: float = 0.7):
        super().__init__()
        self.w = nn.Parameter(number(w).detach())

    def forward(self, s, z):
        return self.w * torch.cos(s) * z

    def twice(self, s, z, factor=2.0):
        return factor / 2 * self.forward(s, z)
