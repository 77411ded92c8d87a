"""Fields: any module as a function of depth."""

from ._augment import InputLayer, ZeroAugment
from ._control import DataControl, DepthConcat, evaluated
from ._expansion import (
    BasisChoice,
    Constraint,
    Expansion,
    Init,
    choose_bases,
    expand,
    non_negative,
    refuse_unsupported,
)
from ._field import Field, fields_of
from ._given import GivenWeights
from ._hyper import Hypernetwork
from ._order import HigherOrder, SelectiveSecondOrder
from ._patterns import choose, listed, matches
from ._run import FieldRun, updated
from ._sampling import Sampling, Samplings, contract, values_at
from ._shards import gathered, gathering, in_shards, is_first, is_sharded
from ._signal import Signal
from ._tensors import copied, has_memory, owner, put, real, slot, tensor, tensor_names
from ._twin import Slots, Twin, Twins
from ._warp import Warped
from ._weights import StageWeights

__all__ = [
    # fields
    "Field", "DepthConcat", "DataControl", "HigherOrder", "SelectiveSecondOrder", "Hypernetwork",
    "Warped", "GivenWeights", "fields_of", "evaluated",
    # inputs
    "Signal", "ZeroAugment", "InputLayer",
    # modules whose tensors are functions of depth
    "BasisChoice", "Init", "Expansion", "Constraint", "expand", "non_negative",
    "refuse_unsupported",
    # weights at depths
    "Sampling", "Samplings", "contract", "values_at", "FieldRun", "StageWeights", "Slots",
    "Twin", "Twins", "updated",
    # tensors of a module, and choices by name
    "copied", "gathered", "gathering", "has_memory", "in_shards", "owner", "put", "real",
    "is_first", "is_sharded", "slot", "tensor", "tensor_names", "choose", "choose_bases", "listed",
    "matches",
]  # fmt: skip
