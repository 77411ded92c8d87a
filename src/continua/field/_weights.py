"""Fields that work out the weights of a module themselves."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from ._control import evaluated
from ._field import Field
from ._tensors import slot


class GivenWeights(Field):
    r"""A field that gives a module its weights at every depth.

    .. math:: \frac{dz}{ds} = f(z;\, \theta(s))

    `continua.fit_hypernetwork` writes θ(s) in a basis, for whatever derives from this.
    """

    @abstractmethod
    def weights(self, s: Tensor) -> dict[str, Tensor]:
        """The weights of the module at a depth, a scalar tensor."""

    @property
    @abstractmethod
    def module(self) -> nn.Module:
        """The module whose weights are given."""


def called_with(
    module: nn.Module,
    weights: Mapping[str, Tensor],
    aliases: Mapping[str, tuple[str, ...]],
    *given: Any,
    **kwargs: Any,
) -> Tensor:
    """A module or field at (s, z, x, ...), with some of its weights exchanged for this call.

    Unlike `torch.func.functional_call` it compiles as one graph.
    """
    places = [
        (*slot(module, alias), value)
        for name, value in weights.items()
        for alias in (name, *aliases.get(name, ()))
    ]
    before = [registry[key] for registry, key, _ in places]
    try:
        for registry, key, value in places:
            registry[key] = value
        return evaluated(module, *given, **kwargs)
    finally:
        for (registry, key, _), old in zip(places, before, strict=True):
            registry[key] = old
