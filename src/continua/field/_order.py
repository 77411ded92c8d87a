"""Fields of higher order: positions, speeds, and so on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import Proxy

from continua._errors import ArgumentError, ShapeError
from continua._values import whole_number

from ._control import channels, evaluated
from ._field import Field


class HigherOrder(Field):
    r"""An equation of order n for the first n-th part of the state.

    .. math:: \frac{dz^i}{ds} = z^{i+1}, \quad i < n, \qquad \frac{dz^n}{ds} = f(s, z, x),
              \qquad z = [z^1, \ldots, z^n]

    Args:
        module: from the whole state, n parts along `dim`, to one part.
        order: n.
        dim: of the channels, which n divides.

    Dissecting Neural ODEs (Massaroli et al. 2020), section 4.

    Example:
        >>> import continua as ct
        >>> class Spring(nn.Module):
        ...     def forward(self, z):
        ...         return -z[:, :1]
        >>> z = ct.ODEBlock(HigherOrder(Spring()), solver=ct.RK4(steps=32), span=(0, torch.pi))(
        ...     torch.tensor([[1.0, 0.0]])
        ... )
        >>> torch.allclose(z, torch.tensor([[-1.0, 0.0]]), atol=1e-4)
        True
    """

    reads_depth = False

    def __init__(self, module: nn.Module, order: int = 2, *, dim: int = 1):
        super().__init__()
        self.module, self.order, self.dim = module, whole_number("order", order), dim

    def forward(self, s: Tensor, z: Tensor, x: Any, *args: Any, **kwargs: Any) -> Tensor:
        size = channels(z, self.dim)
        traced = isinstance(z, Proxy)
        if not traced and size % self.order:
            raise ShapeError(
                f"a state of {size} channels cannot be cut into {self.order} parts: order must "
                f"divide them; augment it by {-size % self.order}"
            )
        part = size // self.order
        last = evaluated(self.module, s, z, x, *args, **kwargs)
        if not traced and last.shape[self.dim] != part:
            raise ShapeError(
                f"the module of a field of order {self.order} gives {part} of {size} channels, "
                f"not {last.shape[self.dim]}; give its last layer {part} outputs"
            )
        return torch.cat([z.narrow(self.dim, part, size - part), last], self.dim)


class SelectiveSecondOrder(Field):
    r"""Second-order dynamics for some coordinates, first-order for the rest.

    .. math:: z = [q, p], \qquad \frac{dq_a}{ds} = p, \qquad
              \frac{dq_b}{ds} = f_b(s, z, x), \qquad \frac{dp}{ds} = f_p(s, z, x)

    with the chosen coordinates a of the position q and their speeds p. It needs fewer
    dimensions than `HigherOrder`: as many more than q as are chosen.

    Args:
        module: from the whole state to f_b and f_p, one after the other: as many channels as q
            has.
        dims: the chosen coordinates of q.
        dim: of the channels.

    Dissecting Neural ODEs (Massaroli et al. 2020), section 4; the formula is our reading.

    Example:
        >>> import continua as ct
        >>> field = SelectiveSecondOrder(nn.Linear(4, 3), dims=[0])  # q has 3, p has 1
        >>> ct.ODEBlock(field, solver=ct.RK4(steps=2))(torch.ones(5, 4)).shape
        torch.Size([5, 4])
    """

    reads_depth = False

    def __init__(self, module: nn.Module, dims: Sequence[int], *, dim: int = 1):
        super().__init__()
        if not isinstance(dims, Sequence):
            raise ArgumentError(f"dims is a list of coordinates such as [0, 2], not {dims!r}")
        chosen = list(dims)
        if any(isinstance(i, bool) or not isinstance(i, int) or i < 0 for i in chosen):
            raise ArgumentError(f"dims are whole numbers from 0, not {chosen}")
        if not chosen or len(set(chosen)) != len(chosen):
            raise ArgumentError(f"dims names one coordinate or more, each once, not {chosen}")
        self.module, self.dims, self.dim = module, chosen, dim

    def forward(self, s: Tensor, z: Tensor, x: Any, *args: Any, **kwargs: Any) -> Tensor:
        size, second = channels(z, self.dim), len(self.dims)
        positions = size - second
        traced = isinstance(z, Proxy)
        if not traced and (positions < second or max(self.dims) >= positions):
            raise ShapeError(
                f"of a state of {size} channels the last {second} are speeds and the first "
                f"{max(positions, 0)} positions: dims {self.dims} are not all among these; choose "
                f"others, or augment the state to {max(self.dims) + 1 + second} channels"
            )
        out = evaluated(self.module, s, z, x, *args, **kwargs)
        if not traced and out.shape[self.dim] != positions:
            raise ShapeError(
                f"the module gives as many channels as there are positions, {positions}, "
                f"not {out.shape[self.dim]}; give its last layer {positions} outputs"
            )
        # The module's channels in their order, a speed put in at each of the chosen places.
        parts, taken = [], 0
        for i, coordinate in enumerate(sorted(self.dims)):
            between = coordinate - i - taken
            if between:
                parts.append(out.narrow(self.dim, taken, between))
                taken += between
            parts.append(z.narrow(self.dim, positions + self.dims.index(coordinate), 1))
        parts.append(out.narrow(self.dim, taken, positions - taken))
        return torch.cat(parts, self.dim)
