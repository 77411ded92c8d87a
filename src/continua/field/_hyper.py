"""Weights that another network gives."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from continua._errors import ArgumentError, ShapeError

from ._given import GivenWeights
from ._tensors import copied, tensor_names


class Hypernetwork(GivenWeights):
    r"""A field whose weights are the output of a network of the depth.

    .. math:: \frac{dz}{ds} = f(z;\, g_\omega(s))

    It is the alternative to a basis that Dissecting Neural ODEs argues against; `weights(s)` can
    be fitted onto a basis by `continua.fit_hypernetwork`, and compressed like the rest.

    Args:
        module: f; it is copied, and its own parameters are frozen. Where the last layer of the net
            has a bias, they are added to it, so that training starts near them.
        net: g, from `[1]`, the depth, to as many numbers as f has; it is copied, too.

    Example:
        >>> import continua as ct
        >>> field = Hypernetwork(nn.Linear(2, 2), nn.Linear(1, 6))
        >>> ct.ODEBlock(field, solver=ct.RK4(steps=2))(torch.ones(5, 2)).shape
        torch.Size([5, 2])
    """

    def __init__(self, module: nn.Module, net: nn.Module):
        super().__init__()
        named = dict(module.named_parameters())
        if not named:
            raise ArgumentError(f"{type(module).__name__} has no parameters to give")
        self._names = tuple(named)
        self._shapes = tuple(p.shape for p in named.values())
        self.count = sum(p.numel() for p in named.values())
        self.base = copied(module).requires_grad_(False)  # frozen, so that a block leaves it alone
        self._aliases = tensor_names(module)[1]
        self.net = copied(net)
        last = [layer for layer in self.net.modules() if isinstance(layer, nn.Linear)][-1:]
        if last and last[0].bias is not None and last[0].bias.shape == (self.count,):
            with torch.no_grad():
                start = torch.cat([p.reshape(-1) for p in named.values()])
                last[0].bias.add_(start.to(last[0].bias))

    def weights(self, s: Tensor) -> dict[str, Tensor]:
        out = self.net(s.reshape(1))
        if out.shape != (self.count,):
            raise ShapeError(
                f"net gives the {self.count} weights of the module, not {list(out.shape)}"
            )
        parts = out.split([shape.numel() for shape in self._shapes])
        return {
            name: part.reshape(shape)
            for name, part, shape in zip(self._names, parts, self._shapes, strict=True)
        }

    @property
    def module(self) -> nn.Module:
        return self.base

    def forward(self, s: Tensor, z: Tensor, x: Any, *args: Any, **kwargs: Any) -> Tensor:
        return self._call(self.base, s, z, x, *args, **kwargs)
