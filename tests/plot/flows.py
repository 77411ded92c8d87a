"""Things to draw: points, labels, flows and densities; and how to read a figure."""

import math

import numpy as np
import torch
from torch import nn
from torch.distributions import Independent, Normal

import continua as ct

S = [0.0, 0.25, 0.5, 1.0]
PLANE = (-3.0, 3.0, -2.0, 2.0)


class Turn(nn.Module):
    """A quarter turn per unit of depth."""

    def __init__(self):
        super().__init__()
        self.rate = nn.Parameter(torch.tensor([math.pi / 2]))

    def forward(self, z):
        return self.rate * torch.stack([-z[:, 1], z[:, 0]], 1)


def turning(basis=None, span=(0.0, 1.0)):
    return ct.ODEBlock(Turn(), basis, ct.RK4(steps=16), span=span)


def some_points(count=12):
    return torch.randn(count, 2, generator=torch.Generator().manual_seed(0))


def some_labels(count=12, classes=2):
    return torch.arange(count) % classes


def turned(s=S, count=12):
    with torch.no_grad():
        return turning().solve(some_points(count), save_at=s).z


def title(ax):
    return ax.get_title(loc="left")


def legend(figure):
    return [text.get_text() for text in figure.legends[0].get_texts()]


def normal(dims=2):
    return Independent(Normal(torch.zeros(dims), torch.ones(dims)), 1)


def bell(mean=0.0):
    x = torch.linspace(-4, 4, 81)
    return x.tolist(), Normal(mean, 1.0).log_prob(x).exp().tolist()


def flow(dims=2):
    return torch.randn(4, 12, dims, generator=torch.Generator().manual_seed(1)).cumsum(0)


def offsets(ax):
    """Where the markers of each label stand."""
    return [
        torch.from_numpy(np.array(c.get_offsets())) for c in ax.collections if len(c.get_offsets())
    ]
