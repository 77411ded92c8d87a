"""Fields that work out the weights of a module themselves."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from torch import Tensor, nn
from torch.func import functional_call

from ._field import Field


class GivenWeights(Field):
    r"""A field that gives a module its weights at every depth.

    .. math:: \frac{dz}{ds} = f(z;\, \theta(s))

    `continua.fit_hypernetwork` writes θ(s) in a basis, for whatever derives from this.
    """

    _aliases: dict[str, tuple[str, ...]]  # the further names of tensors of the module

    @abstractmethod
    def weights(self, s: Tensor) -> dict[str, Tensor]:
        """The weights of the module at a depth, a scalar tensor."""

    @property
    @abstractmethod
    def module(self) -> nn.Module:
        """The module whose weights are given."""

    def _call(
        self, module: nn.Module, s: Tensor, z: Tensor, x: Any, *args: Any, **kwargs: Any
    ) -> Tensor:
        """A module or field, called with the weights of this depth."""
        weights = self.weights(s)
        tensors = {other: t for name, t in weights.items() for other in self._names_of(name)}
        given = (s, z, x) if isinstance(module, Field) else (z,)
        out: Tensor = functional_call(module, tensors, (*given, *args), kwargs, tie_weights=False)
        return out

    def _names_of(self, name: str) -> tuple[str, ...]:
        return (name, *self._aliases.get(name, ()))
