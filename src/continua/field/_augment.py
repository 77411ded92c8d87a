"""From the input to the state at the start."""

from __future__ import annotations

from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch.fx import Proxy

from continua._errors import ArgumentError, ShapeError
from continua._values import whole_number

Place = Literal["first", "last"]


class ZeroAugment(nn.Module):
    r"""More dimensions, which start at zero.

    .. math:: z(0) = [x, 0]

    Args:
        dims: how many.
        place: `"last"`, after x, or `"first"`. In a state of higher order what comes first is
            the position.
        dim: of the channels.

    Augmented Neural ODEs (Dupont et al. 2019).

    Example:
        >>> ZeroAugment(2)(torch.ones(1, 3))
        tensor([[1., 1., 1., 0., 0.]])
    """

    def __init__(self, dims: int, *, place: Place = "last", dim: int = 1):
        super().__init__()
        self.dims, self.place, self.dim = whole_number("dims", dims), checked_place(place), dim

    def forward(self, x: Tensor) -> Tensor:
        given: Any = x
        if isinstance(given, Proxy):  # a graph is traced, which knows no shape
            zeros = torch.zeros_like(x.narrow(self.dim, 0, 1))
            zeros = zeros.repeat_interleave(self.dims, self.dim)
        else:
            shape = list(x.shape)
            shape[self.dim] = self.dims
            zeros = x.new_zeros(shape)
        return torch.cat([zeros, x] if self.place == "first" else [x, zeros], self.dim)

    def extra_repr(self) -> str:
        return f"{self.dims}, place={self.place!r}"


class InputLayer(nn.Module):
    r"""A state that the input determines through a module.

    .. math:: z(0) = h(x) \quad\text{or}\quad z(0) = [x, h(x)]

    Args:
        module: h.
        keep_input: whether x itself is part of the state.
        place: of h(x) beside x, `"last"` or `"first"`.
        dim: of the channels.

    Dissecting Neural ODEs (Massaroli et al. 2020), section 4.

    Example:
        >>> InputLayer(nn.Linear(3, 2), keep_input=True)(torch.ones(1, 3)).shape
        torch.Size([1, 5])
    """

    def __init__(
        self,
        module: nn.Module,
        *,
        keep_input: bool = False,
        place: Place = "last",
        dim: int = 1,
    ):
        super().__init__()
        self.module, self.keep_input = module, keep_input
        self.place, self.dim = checked_place(place), dim

    def forward(self, x: Tensor) -> Tensor:
        h: Tensor = self.module(x)
        if not self.keep_input:
            return h
        dim = self.dim % x.dim()
        if h.dim() != x.dim() or any(
            a != b for i, (a, b) in enumerate(zip(h.shape, x.shape, strict=True)) if i != dim
        ):
            raise ShapeError(
                f"an input of shape {list(x.shape)} and its image of shape {list(h.shape)} cannot "
                f"stand side by side: all but dimension {self.dim} must agree"
            )
        return torch.cat([h, x] if self.place == "first" else [x, h], self.dim)

    def extra_repr(self) -> str:
        return f"keep_input={self.keep_input}, place={self.place!r}"


def checked_place(place: Place) -> Place:
    """The place, if it is one."""
    if place not in get_args(Place):
        raise ArgumentError(f"place is 'first' or 'last', not {place!r}")
    return place
