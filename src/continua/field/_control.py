"""Fields that read more than the state."""

from __future__ import annotations

from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch.fx import Proxy

from continua._errors import ArgumentError, ShapeError

from ._field import Field
from ._signal import Signal

How = Literal["concat", "add"]


def evaluated(module: nn.Module, s: Tensor, z: Tensor, x: Any, *args: Any, **kwargs: Any) -> Tensor:
    """A module or a field at depth, state and input, whichever of them it takes."""
    given = (s, z, x) if isinstance(module, Field) else (z,)
    out: Tensor = module(*given, *args, **kwargs)
    return out


def channels(z: Any, dim: int) -> int:
    """How many channels a state has, if it is one tensor and has that dimension.

    While a graph is traced that is a proxy too, about which nothing can be asked.
    """
    if isinstance(z, Proxy):
        traced: Any = z.shape
        return traced[dim]  # type: ignore[no-any-return]
    if not isinstance(z, Tensor):
        raise ShapeError(
            f"a field that reads the channels of its state takes one tensor, not "
            f"{type(z).__name__}; put the parts of the state together with torch.cat"
        )
    if not -z.dim() <= dim < z.dim():
        raise ShapeError(
            f"a state of shape {list(z.shape)} has no dimension {dim} for its channels; give the "
            f"field dim= from {-z.dim()} to {z.dim() - 1}"
        )
    return z.shape[dim]


class DepthConcat(Field):
    r"""A field that is told the depth as one more channel.

    .. math:: \frac{dz}{ds} = f([z, s])

    Several modules follow one another, each of which is told the depth anew.

    Args:
        modules: the first takes one channel more than the state has; the last gives as many as
            that.
        dim: of the channels.

    The depth-concatenated model of Dissecting Neural ODEs (Massaroli et al. 2020).

    Example:
        >>> import continua as ct
        >>> field = DepthConcat(nn.Linear(3, 2))
        >>> ct.ODEBlock(field, solver=ct.RK4(steps=2))(torch.ones(5, 2)).shape
        torch.Size([5, 2])
    """

    def __init__(self, *modules: nn.Module, dim: int = 1):
        super().__init__()
        if not modules:
            raise ArgumentError("DepthConcat wraps at least one module")
        self.layers = nn.ModuleList(modules)
        self.dim = dim

    def forward(self, s: Tensor, z: Tensor, x: Any, *args: Any, **kwargs: Any) -> Tensor:
        channels(z, self.dim)
        for layer in self.layers:
            depth = s.to(z.dtype).expand_as(z.narrow(self.dim, 0, 1))
            z = torch.cat([z, depth], self.dim)
            z = evaluated(layer, s, z, x, *args, **kwargs)
        return z


class DataControl(Field):
    r"""A field that depends on the input: every input has a flow of its own.

    .. math:: \frac{dz}{ds} = f(z, x)

    x is the control of the call, `block(z, control=x)`: a tensor, or a `Signal` that varies with
    depth. Without one it is the state at the start. Gradients flow into it.

    Args:
        module: takes the state and the control together.
        how: `"concat"` along the channels, or `"add"`.
        embed: from x to what is concatenated or added.
        dim: of the channels.

    Dissecting Neural ODEs (Massaroli et al. 2020), section 5.

    Example:
        >>> import continua as ct
        >>> block = ct.ODEBlock(DataControl(nn.Linear(4, 2)), solver=ct.RK4(steps=2))
        >>> block(torch.ones(5, 2)).shape
        torch.Size([5, 2])
    """

    reads_depth = False

    def __init__(
        self,
        module: nn.Module,
        *,
        how: How = "concat",
        embed: nn.Module | None = None,
        dim: int = 1,
    ):
        super().__init__()
        if how not in get_args(How):
            raise ArgumentError(f"how is 'concat' or 'add', not {how!r}")
        self.module, self.how, self.embed, self.dim = module, how, embed, dim

    def forward(self, s: Tensor, z: Tensor, x: Any, *args: Any, **kwargs: Any) -> Tensor:
        value: Any = x(s) if isinstance(x, Signal) else x
        if not isinstance(value, Tensor | Proxy):
            raise ShapeError(
                f"the control is a tensor or a Signal, not {type(x).__name__}; use torch.as_tensor"
            )
        channels(z, self.dim)
        if self.embed is not None:
            value = self.embed(value)
        joined = join_control(z, value, self.how, self.dim)
        return evaluated(self.module, s, joined, x, *args, **kwargs)


def join_control(z: Any, x: Any, how: How, dim: int) -> Tensor:
    """State and control in one tensor; a vector control is spread over an image's pixels."""
    joined: Tensor
    if isinstance(z, Proxy):  # a graph is traced: they must have as many dimensions
        joined = z + x if how == "add" else torch.cat([z, x], dim)  # type: ignore[list-item]
        return joined
    if x.dim() == 2 and z.dim() > 2:
        if len(x) not in (1, len(z)):
            raise ShapeError(
                f"a control of shape {list(x.shape)} cannot be spread over a state of shape "
                f"{list(z.shape)}: give one row for each of the {len(z)} samples"
            )
        shape = [1] * z.dim()
        shape[0], shape[dim] = x.shape
        x = x.reshape(shape)
        spread = list(z.shape)
        spread[dim] = x.shape[dim]
        x = x.expand(spread)
    if how == "add":
        if x.shape != z.shape:
            raise ShapeError(
                f"a control of shape {list(x.shape)} cannot be added to a state of shape "
                f"{list(z.shape)}; give embed=, or how='concat'"
            )
        joined = z + x
        return joined
    rest = [[n for i, n in enumerate(t.shape) if i != dim % t.dim()] for t in (z, x)]
    if z.dim() != x.dim() or rest[0] != rest[1]:
        raise ShapeError(
            f"a control of shape {list(x.shape)} cannot stand beside a state of shape "
            f"{list(z.shape)}: all but dimension {dim} must agree; give embed="
        )
    return torch.cat([z, x], dim)
