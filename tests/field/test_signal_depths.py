"""The depths of a fixed grid, which blocks and solves share, under a signal."""

import torch
from torch import nn

import continua as ct


class Driven(ct.Field):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 2)

    def forward(self, s, z, x):
        return self.layer(z) + x(s)


def test_a_signal_leaves_the_depths_of_a_fixed_grid_as_they_are():
    block = ct.ODEBlock(Driven(), solver=ct.RK4(steps=4)).double()
    signal = ct.Signal(torch.tensor([0.0, 0.5, 1.0]), torch.randn(3, 3, 2, dtype=torch.float64))
    before = block.plan.depths.clone()
    block(torch.randn(3, 2, dtype=torch.float64), control=signal)
    assert torch.equal(block.plan.depths, before)
