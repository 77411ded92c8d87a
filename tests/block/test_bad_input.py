"""What a block is told when it is given what cannot work."""

import copy
import math

import numpy as np
import pytest
import torch
from torch import nn

import continua as ct
from nets import conv_unit, mlp


def bad(match, error=ct.ContinuaError):
    return pytest.raises(error, match=match)


def test_bad_states():
    block = ct.ODEBlock(conv_unit(), ct.PiecewiseConstant(2), ct.Euler(steps=2))
    x = torch.randn(2, 4, 5, 5)
    before = copy.deepcopy(block.state_dict())
    with bad(r"floating-point, not torch.int64"):
        block(torch.ones(2, 4, 5, 5, dtype=torch.int64))
    with bad(r"3 NaN of 400 values, first in sample 1"):
        y = torch.randn(4, 4, 5, 5)
        y[1, 0, 0, :3] = math.nan
        block(y)
    with bad("infinite"):
        block(x / 0)
    with bad(r"torch.float64 but the block's weights are torch.float32"):
        block(x.double())
    with bad(r"Sequential fails on a state of shape \[2, 4\]"):
        block(torch.randn(2, 4))
    with bad(r"Sequential fails on a state of shape \[2, 3, 5, 5\]"):
        block(torch.randn(2, 3, 5, 5))
    with bad("a tensor, or a tuple or dictionary of tensors, not list"):
        block([1.0])
    with bad("on meta but the block's weights are on cpu"):
        block(x.to("meta"))
    assert all(torch.equal(block.state_dict()[name], value) for name, value in before.items())


def test_bad_fields():
    with bad(r"Linear maps a state of shape \[5, 3\] to \[5, 4\]", ct.ShapeError):
        ct.ODEBlock(nn.Linear(3, 4), solver=ct.Euler(steps=1))(torch.randn(5, 3))

    class Pair(nn.Module):
        def forward(self, z):
            return z, z

    with bad("Pair returned tuple"):
        ct.ODEBlock(Pair(), solver=ct.Euler(steps=1))(torch.randn(5, 3))
    with bad("a function, not str"):
        ct.ODEBlock("tanh")
    with bad("in place; a solver needs that state again: use inplace=False"):
        ct.ODEBlock(nn.ReLU(inplace=True), solver=ct.Euler(steps=1))(torch.randn(5, 3))
    with bad("contains an ODEBlock"):
        ct.ODEBlock(nn.Sequential(ct.ODEBlock(mlp()), nn.Tanh()))


def test_bad_arguments():
    with bad("at least 1, not 0"):
        ct.Euler(steps=0)
    with bad("at least 1, not -3"):
        ct.PiecewiseConstant(-3)
    with bad("even: use 4 or 6, not 5"):
        ct.DiscontinuousLinear(5)
    with bad("such as continua.RK4"):
        ct.ODEBlock(mlp(), solver=ct.RK4)
    with bad("not 'rk4'"):
        ct.ODEBlock(mlp(), solver="rk4")
    with bad("which is not a basis"):
        ct.ODEBlock(mlp(), ct.PiecewiseConstant)
    with bad("from one finite depth to another"):
        ct.ODEBlock(mlp(), span=(1, 1))
    with bad("from one finite depth to another"):
        ct.ODEBlock(mlp(), span=(0, math.inf))
    with bad("pair of depths"):
        ct.ODEBlock(mlp(), span=3)
    with bad("'copy' or 'independent'"):
        ct.ODEBlock(mlp(), init="zeros")


def test_bad_depths():
    block = ct.ODEBlock(mlp(), solver=ct.Euler(steps=2))
    x = torch.randn(2, 6)
    with bad("list of depths, not 0.5"):
        block.solve(x, save_at=0.5)
    with bad("finite number, not '0.5'"):
        block.at("0.5")
    with bad("function or a module, not 3"):
        block.solve(x, running_cost=3)
    with bad("depth 1.5, outside the span"):
        block.solve(x, save_at=[0.5, 1.5])
    with bad("sort it"):
        block.solve(x, save_at=[0.7, 0.5])
    with bad("save_at is a list of depths, or 'steps'"):
        block.solve(x, save_at="all")
    with bad("finite number"):
        block.at(math.nan)
    with bad("finite depth"):
        block.solve(x, span=(0, 0))


class Closure(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 3)
        self.act = lambda z: torch.tanh(self.layer(z))

    def forward(self, z):
        return self.act(z)


def test_a_function_that_holds_the_module_itself():
    with pytest.raises(ct.ModuleError, match=r"Closure\.act is a function that uses a Closure"):
        ct.ODEBlock(Closure())


def test_depths_and_sides():
    block = ct.ODEBlock(nn.Linear(2, 2), ct.PiecewiseConstant(2), ct.Euler(steps=2))
    for depth in (torch.tensor(0.25), np.float32(0.25)):
        assert torch.equal(block.at(depth).weight, block.at(0.25).weight)
    for depth in ("0.5", None, torch.ones(2), math.inf):
        with pytest.raises(ct.ArgumentError, match="a depth is a finite number"):
            block.at(depth)
    with pytest.raises(ct.ArgumentError, match="side is 'left' or 'right', not 'lft'"):
        block.at(0.5, side="lft")


def test_a_frozen_field_has_no_gradients_by_weights():
    block = ct.ODEBlock(nn.Linear(2, 2).requires_grad_(False), solver=ct.Euler(steps=2))
    z = torch.ones(1, 2)
    assert block.weight_vjp(0.5, z, z) == {}
    found = ct.functional_gradient(block, z, torch.sum, [0.0, 1.0])
    assert found.norm.tolist() == [0.0, 0.0]


def test_a_span_that_is_a_number():
    with pytest.raises(ct.ArgumentError, match=r"write \(0, 8\)"):
        ct.ODEBlock(nn.Tanh(), span=8)
