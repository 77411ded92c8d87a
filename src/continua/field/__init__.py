"""Fields: any module as a function of depth."""

from ._binding import Binding, Frame, values_at
from ._expansion import BasisChoice, Expansion, expand, non_negative
from ._field import Field
from ._initial import Init
from ._patterns import choose, listed
from ._sampling import Sampling, autocasting, contract
from ._tensors import copied, put, real, tensor

__all__ = [
    "BasisChoice",
    "Binding",
    "Expansion",
    "Field",
    "Frame",
    "Init",
    "Sampling",
    "autocasting",
    "choose",
    "contract",
    "copied",
    "expand",
    "listed",
    "non_negative",
    "put",
    "real",
    "tensor",
    "values_at",
]
