"""Layers for `convert`."""

import torch
from torch import nn


class Unit(nn.Module):
    """A residual unit, the input added or not; with settings, a mask, and a table that is fixed."""

    def __init__(self, adds: bool = False, rate: float = 0.5, index: int = 0):
        super().__init__()
        self.adds, self.rate, self.index = adds, rate, index
        self.norm = nn.BatchNorm2d(4)
        self.act = nn.functional.relu
        self.conv = nn.Conv2d(4, 4, 3, padding=1)
        self.register_buffer("mask", torch.tensor([True, True, False, True]))

    def forward(self, x: torch.Tensor, factor: float = 1.0) -> torch.Tensor:
        out = factor * self.rate * self.conv(self.act(self.norm(x)))
        out = out * self.mask[:, None, None]
        return x + out if self.adds else out


def stack(adds: bool, count: int = 5) -> nn.ModuleList:
    torch.manual_seed(0)
    layers = nn.ModuleList([Unit(adds) for _ in range(count)])
    with torch.no_grad():
        for layer in layers:
            layer.norm.running_mean.normal_()
            layer.norm.running_var.uniform_(0.5, 2)
            layer.norm.weight.normal_()
    return layers


def applied(layers, x, skip, **kwargs):
    for layer in layers:
        x = layer(x, **kwargs) if skip == "inside" else x + layer(x, **kwargs)
    return x


def layer_of(block, skip):
    return block.field.layer if skip == "inside" else block.field


class Holder(nn.Module):
    """A layer with one more attribute."""

    def __init__(self, value):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.value = value

    def forward(self, x):
        return x + self.linear(x)
