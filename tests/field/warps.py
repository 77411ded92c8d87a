"""A warped block beside the plain one."""

import torch

import continua as ct
from nets import mlp


def pair(basis, solver, gradient=None, module=None):
    """The warped block without a warp, and the plain one, with the same coefficients."""
    torch.manual_seed(0)
    module = mlp(3).double() if module is None else module
    warped = ct.ODEBlock(ct.Warped(module, basis), solver=solver, gradient=gradient)
    plain = ct.ODEBlock(module, basis, solver, gradient)
    with torch.no_grad():
        for name in plain.expansion.weights:
            stack = plain.field.get_parameter(name)
            stack.add_(0.3 * torch.randn_like(stack))
            warped.field.expanded.get_parameter(name).copy_(stack[None])
    return warped, plain
