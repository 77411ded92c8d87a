"""Fields: any module as a function of depth."""

from ._augment import InputLayer, ZeroAugment
from ._binding import Binding, Frame, values_at
from ._control import DataControl, DepthConcat, evaluated
from ._expansion import (
    BasisChoice,
    Constraint,
    Expansion,
    expand,
    non_negative,
    refuse_unsupported,
)
from ._field import Field, fields_of
from ._hyper import Hypernetwork
from ._initial import Init
from ._order import HigherOrder, SelectiveSecondOrder
from ._path import Path
from ._patterns import choose, listed
from ._sampling import Sampling, autocasting, contract
from ._tensors import copied, put, real, tensor, tensor_names
from ._turn import in_turn, turn
from ._warp import Warped
from ._weights import GivenWeights

__all__ = [
    "BasisChoice",
    "Binding",
    "Constraint",
    "DataControl",
    "DepthConcat",
    "Expansion",
    "Field",
    "Frame",
    "GivenWeights",
    "HigherOrder",
    "Hypernetwork",
    "Init",
    "InputLayer",
    "Path",
    "Sampling",
    "SelectiveSecondOrder",
    "Warped",
    "ZeroAugment",
    "autocasting",
    "choose",
    "contract",
    "copied",
    "evaluated",
    "expand",
    "fields_of",
    "in_turn",
    "listed",
    "non_negative",
    "put",
    "real",
    "refuse_unsupported",
    "tensor",
    "tensor_names",
    "turn",
    "values_at",
]
