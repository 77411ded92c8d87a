"""What is integrated."""

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from torch import Tensor, nn


class Field(nn.Module, ABC):
    r"""A vector field that sees depth and input.

    .. math:: \frac{dz}{ds} = f(s, z, x)

    Any `nn.Module` that maps z to dz/ds can be handed to `ODEBlock` as it is; derive from `Field`
    when the module also reads the depth or the block's input. Its parameters become functions of
    depth like those of any other module.

    Example:
        >>> import torch
        >>> import continua as ct
        >>> class Decay(ct.Field):
        ...     def forward(self, s, z, x):
        ...         return s * (x - z)
        >>> ct.ODEBlock(Decay(), solver=ct.Euler(steps=2))(torch.ones(1, 3))
        tensor([[1., 1., 1.]])
    """

    #: False for a field that hands the depth to other fields and does not read it itself
    reads_depth: ClassVar[bool] = True

    @abstractmethod
    def forward(self, s: Tensor, z: Tensor, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """dz/ds at depth s (a scalar tensor) and state z, for a block whose input was x."""

    @property
    def depth_frequency(self) -> float:
        """How fast the field's own weights vary with depth, in radians per unit of it.

        For a field that reads weights in a basis of its own: an adaptive solver whose steps are
        differentiated must resolve every function there, as it does with the block's basis.
        """
        return 0.0

    def points_on(self, width: float, error: float) -> int:
        """How many Gauss points integrate those weights over a width of depth to this error."""
        return 1


def fields_of(module: nn.Module) -> list[Field]:
    """The field, and those that it is made of; none where it is a plain module."""
    if not isinstance(module, Field):
        return []
    return [part for part in module.modules() if isinstance(part, Field)]
