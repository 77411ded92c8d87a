"""Small modules that the tests wrap."""

import math

import torch
from torch import Tensor, nn

import continua as ct


def conv_unit(channels: int = 4) -> nn.Sequential:
    """The pre-activation residual unit of Stateful ODE-Nets."""
    return nn.Sequential(
        nn.BatchNorm2d(channels),
        nn.ReLU(),
        nn.Conv2d(channels, channels, 3, padding=1, bias=False),
        nn.BatchNorm2d(channels),
        nn.ReLU(),
        nn.Conv2d(channels, channels, 3, padding=1, bias=False),
    )


def mlp(width: int = 6, norm: bool = False) -> nn.Sequential:
    layers = [nn.BatchNorm1d(width)] if norm else []
    return nn.Sequential(*layers, nn.Linear(width, 8), nn.Tanh(), nn.Linear(8, width))


def scrambled(block: ct.ODEBlock) -> ct.ODEBlock:
    """The block with every coefficient different, variances positive."""
    with torch.no_grad():
        for p in block.parameters():
            p.add_(0.3 * torch.randn_like(p))
        for name in block.expansion.state:
            buffer = block.field.get_buffer(name)
            buffer.copy_(torch.rand_like(buffer) + 0.5)
    return block


class Net(nn.Module):
    """A classifier around one block, for files: importable, with arguments of every kind."""

    def __init__(
        self,
        width: int = 6,
        basis: ct.Basis = ct.PiecewiseConstant(4),  # noqa: B008
        solver: ct.Euler = ct.Euler(steps=4),  # noqa: B008
        tied: bool = False,
    ):
        super().__init__()
        self.stem = nn.Linear(3, width)
        self.block = ct.ODEBlock(mlp(width, norm=True), basis, solver)
        self.head = nn.Linear(width, 3)
        if tied:
            self.other_head = self.head

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.block(self.stem(x)))


def make_net(width: int) -> nn.Module:
    return Net(width)


def make_pair(width: int) -> nn.Sequential:
    """Two blocks in a row."""
    first = ct.ODEBlock(mlp(width), ct.PiecewiseConstant(4), ct.Euler(steps=4))
    second = ct.ODEBlock(mlp(width), ct.Fourier(2), ct.RK4(steps=2))
    return nn.Sequential(first, nn.Tanh(), second)


def shared_pair(width: int) -> nn.Sequential:
    """Two blocks with one weight."""
    pair = (ct.ODEBlock(mlp(width), ct.PiecewiseConstant(2)) for _ in range(2))
    model = nn.Sequential(*pair)
    model[1].field[0].weight = model[0].field[0].weight
    return model


def not_a_model(command: str) -> int:
    raise AssertionError(f"a file made continua call this with {command!r}")


class Broken(nn.Module):
    """Importable, but its construction always fails."""

    def __init__(self):
        super().__init__()
        raise RuntimeError("no such data set")


def mixed() -> nn.Module:
    """Weights of one block in different bases."""
    field = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3))
    bases = {
        "0.weight": ct.Fourier(4, period=2 * math.pi),
        "0.bias": ct.BSpline(6, degree=2),
        "2.weight": ct.PiecewiseConstant(8),
        "*": ct.Constant(),
    }
    return nn.Sequential(ct.ODEBlock(field, bases, ct.RK4(steps=4)))
