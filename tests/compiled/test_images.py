"""Compiled steps of image fields, for which inductor would choose memory layouts of its own."""

import copy

import pytest
import torch
from torch import nn

import continua as ct


def convolution_and_norm():
    return nn.Sequential(nn.Conv2d(3, 3, 3, padding=1, bias=False), nn.BatchNorm2d(3), nn.ReLU())


def depthwise():
    return nn.Sequential(
        nn.Conv2d(3, 3, 3, padding=1, groups=3), nn.GroupNorm(1, 3), nn.SiLU(), nn.Conv2d(3, 3, 1)
    )


def down_and_up():
    return nn.Sequential(
        nn.Conv2d(3, 6, 3, stride=2, padding=1), nn.Tanh(), nn.ConvTranspose2d(6, 3, 2, stride=2)
    )


def check(field, solver, gradient):
    """The compiled gradient is the eager one."""
    torch.manual_seed(0)
    basis = ct.PiecewiseConstant(2)
    block = ct.ODEBlock(field(), basis, solver, gradient, init="independent").double()
    x = torch.randn(4, 3, 6, 6, dtype=torch.float64, requires_grad=True)
    found = []
    for model in (block, copy.deepcopy(block).compile()):
        y = model(x)
        wanted = [x, *model.parameters()]
        found.append([y, *torch.autograd.grad(y.square().sum(), wanted), *model.buffers()])
    torch.testing.assert_close(*found, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("solver", [ct.RK4(steps=2), ct.Bosh3(1e-2, 1e-2)], ids=str)
def test_convolution_and_norm(solver):
    check(convolution_and_norm, solver, ct.Backprop())


@pytest.mark.compiled
@pytest.mark.parametrize("solver", [ct.RK4(steps=2), ct.Bosh3(1e-2, 1e-2)], ids=str)
@pytest.mark.parametrize("gradient", [ct.Backprop(), ct.Checkpoint(), ct.Adjoint()], ids=str)
@pytest.mark.parametrize("field", [convolution_and_norm, depthwise, down_and_up])
def test_every_gradient(field, gradient, solver):
    check(field, solver, gradient)
