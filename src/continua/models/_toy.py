"""The smallest continuous classifier, for points in the plane."""

from __future__ import annotations

from torch import nn

from continua.block import ODEBlock
from continua.field import BasisChoice
from continua.gradient import Gradient
from continua.solve import Solver

from ._units import check_epsilon, check_whole


def continuous_classifier(
    *,
    basis: BasisChoice,
    solver: Solver,
    inputs: int = 2,
    dim: int = 3,
    hidden: int | None = None,
    epsilon: float = 1.0,
    gradient: Gradient | None = None,
) -> nn.Sequential:
    r"""Two classes of points: a linear layer, an ODE block, a linear layer to one logit.

    .. math:: \frac{dz}{ds} = \tanh(W_2(s) \tanh(W_1(s)\, z + b_1(s)) + b_2(s)),
              \qquad z(0) = W x + b

    The output, `[B, 1]`, is a logit: a sigmoid makes it the probability that the paper's
    network gives. The paper's toy has K = 3 and ten steps of RK4.

    Args:
        basis: how the weights of the field vary with depth.
        solver: of the block.
        inputs: coordinates of a point.
        dim: of the state.
        hidden: units of the field's hidden layer; None takes `dim`.
        epsilon: the length of the span.
        gradient: how the block is differentiated; None is back-propagation.

    Stateful ODE-Nets (Queiruga et al. 2021), who separate two circles with it.

    Example:
        >>> import continua as ct
        >>> net = continuous_classifier(basis=ct.PiecewiseLinear(3), solver=ct.RK4(steps=10))
        >>> sum(p.numel() for p in net.parameters())
        85
    """
    hidden = dim if hidden is None else hidden
    check_whole(inputs=inputs, dim=dim, hidden=hidden)
    check_epsilon(epsilon)
    field = nn.Sequential(nn.Linear(dim, hidden), nn.Tanh(), nn.Linear(hidden, dim), nn.Tanh())
    net = nn.Sequential()
    net.add_module("stem", nn.Linear(inputs, dim))
    net.add_module("block", ODEBlock(field, basis, solver, gradient, span=(0.0, epsilon)))
    net.add_module("head", nn.Linear(dim, 1))
    return net
