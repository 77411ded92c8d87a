"""Fields, costs and bases on which gradients are compared."""

import copy

import pytest
import torch
from torch import nn

import continua as ct

BASES = [
    ct.Constant(),
    ct.PiecewiseConstant(3),
    ct.PiecewiseLinear(4),
    ct.Fourier(2),
    ct.BSpline(5),
]
every_basis = pytest.mark.parametrize("basis", BASES, ids=repr)


class Controlled(ct.Field):
    """A field of depth, state and input."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(3, 5)
        self.outer = nn.Linear(5, 3)

    def forward(self, s, z, x):
        return torch.tanh(self.outer(torch.tanh(self.inner(z)))) + 0.3 * s * x


class SecondOrder(nn.Module):
    """Positions and speeds: z = [q, p]."""

    def __init__(self):
        super().__init__()
        self.force = nn.Linear(2, 2)

    def forward(self, z):
        q, p = z.chunk(2, 1)
        return torch.cat([p, torch.tanh(self.force(q)) - 0.1 * p], 1)


class Convolution(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Conv2d(2, 2, 3, padding=1), nn.Tanh())


class Cost(nn.Module):
    """A running cost with parameters of its own."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(0.7))

    def forward(self, s, z):
        return (1 + s) * (self.scale * z).flatten(1).square().mean(1)


FIELDS = {
    "controlled": (Controlled, (4, 3)),
    "second order": (SecondOrder, (4, 4)),
    "image": (Convolution, (2, 2, 4, 4)),
}


def make(field, basis, solver):
    torch.manual_seed(0)
    module, shape = FIELDS[field]
    block = ct.ODEBlock(module().double(), basis, solver)
    with torch.no_grad():
        for p in block.parameters():
            p.add_(0.3 * torch.randn_like(p))
    return block, torch.randn(shape, dtype=torch.float64), Cost().double()


def gradients(block, x, cost, gradient, save_at=(0.0, 0.3, 0.7, 1.0)):
    """Of input, both ends of the span, weights, and the cost's own parameter."""
    block = copy.deepcopy(block)
    block.gradient = gradient
    x = x.clone().requires_grad_()
    ends = [torch.tensor(float(s), dtype=torch.float64, requires_grad=True) for s in block.span]
    solution = block.solve(x, save_at=save_at, span=tuple(ends), running_cost=cost)
    weights = torch.linspace(1, 2, len(solution.z), dtype=torch.float64)
    along = (weights.reshape(-1, *[1] * x.dim()) * solution.z).sin().sum()
    loss = solution.final.square().sum() + along
    if cost is not None:
        loss = loss + solution.cost.sum()
    wanted = [x, *ends, *block.parameters(), *(cost.parameters() if cost is not None else ())]
    found = torch.autograd.grad(loss, wanted)
    return torch.cat([g.reshape(-1) for g in found]), solution


def distance(a, b):
    return float((a - b).norm() / b.norm())
