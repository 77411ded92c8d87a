"""Which units of a module may change places."""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

#: operations on each entry by itself, or over all, by the name of the function without underscores
ELEMENTWISE = frozenset([
    "abs", "add", "addcdiv", "addcmul", "alpha_dropout", "celu", "clamp", "clip", "cos", "div",
    "dropout", "elu", "eq", "exp", "expm1", "ge", "gelu", "gt", "half",
    "hardsigmoid", "hardswish", "hardtanh", "le", "leaky_relu", "lerp", "log", "log1p",
    "log_softmax", "logsigmoid", "lt", "masked_fill", "maximum", "minimum", "mish", "mul",
    "multiply", "nan_to_num", "ne", "neg", "negative", "pow", "radd", "rdiv", "reciprocal",
    "relu", "relu6", "rmul", "rsqrt", "rsub", "rtruediv", "selu", "sigmoid", "silu", "sin",
    "softmax", "softplus", "softsign", "sqrt", "square", "sub", "subtract", "tanh",
    "tanhshrink", "true_divide", "truediv", "where",
])  # fmt: skip
#: operations that only move entries
MOVES = frozenset([
    "chunk", "clone", "contiguous", "detach", "expand", "flatten", "get", "getitem", "movedim",
    "narrow", "permute", "ravel", "reshape", "select", "split", "squeeze", "swapaxes",
    "swapdims", "t", "tensor_split", "transpose", "unbind", "unflatten", "unsqueeze", "view",
])  # fmt: skip
#: operations that change the dtype of their first argument
CASTS = frozenset(["double", "float", "half", "bfloat16", "to", "type_as"])
#: operations that give plain numbers
READS = frozenset(["bool", "complex", "float", "index", "int", "item", "numpy", "tolist"])
#: the tensor and the dimension, and for each unit its positions there, `[n, c]`
Group = dict[tuple[str, int], Tensor]
#: for each tensor that an operation returns its label, if it has one
Labels = Sequence[Tensor | None]


class Operation(NamedTuple):
    """A call of a function, the tensors that it was given, and what it returned."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    given: list[Tensor]
    out: Any

    def arguments(self, *names: str) -> list[Any]:
        """The arguments with these names, which are those of the first parameters in order."""
        named = dict(zip(names, self.args, strict=False)) | self.kwargs
        return [named.get(name) for name in names]


class UnitTracker(TorchFunctionMode):
    r"""Follows hidden units through the operations of a module.

    A unit is a set of rows, columns and entries of the module's tensors that belong together: row
    i of a map, entry i of the norm after it, column i of the next map. Every row and column
    starts as a unit of its own. While the module runs, each tensor is labelled with the units
    that its entries belong to, and an operation makes one unit of those that it relates. An
    operation that is not known fixes the units it sees, and so do the state and the output.

    Args:
        tensors: those of the module that may be permuted, by name.
    """

    def __init__(self, tensors: Mapping[str, Tensor]):
        super().__init__()
        self._names = {value: name for name, value in tensors.items()}
        self._used = set[Tensor]()
        self._parent = [0]  # of each unit; unit 0 is all that is fixed
        self._units = {
            value: [self._new(size) for size in value.shape[:2]] for value in tensors.values()
        }
        self._labels = {
            value: units[0]
            for value, units in self._units.items()
            if value.dim() == 1 and len(value) > 1  # one entry broadcasts
        }

    def groups(self, out: Any) -> list[Group]:
        """The units that may change places with one another, after a run.

        Args:
            out: what the module returned.
        """
        self._fix(*tree_leaves(out))
        units: dict[int, dict[tuple[str, int], list[int]]] = defaultdict(lambda: defaultdict(list))
        for value, dims in self._units.items():
            for dim, ids in enumerate(dims if value in self._used else ()):
                for position, unit in enumerate(ids.tolist()):
                    if (root := self._root(unit)) != 0:
                        units[root][self._names[value], dim].append(position)
        similar: dict[Any, list[Any]] = defaultdict(list)
        for unit in units.values():
            similar[tuple((where, len(places)) for where, places in unit.items())].append(unit)
        return [
            {where: torch.tensor([unit[where] for unit in members]) for where in members[0]}
            for members in similar.values()
            if len(members) > 1
        ]

    # -- units

    def _new(self, count: int) -> Tensor:
        first = len(self._parent)
        self._parent += range(first, first + count)
        return torch.arange(first, first + count)

    def _root(self, unit: int) -> int:
        while self._parent[unit] != unit:
            self._parent[unit] = self._parent[self._parent[unit]]
            unit = self._parent[unit]
        return unit

    def _tie(self, one: Tensor | None, other: Tensor | None) -> None:
        """Make one unit of those that meet in two labels; without a label it is a fixed one."""
        fixed, count = torch.tensor(0), len(self._parent)
        first, second = (fixed if label is None else label for label in (one, other))
        for pair in set((first * count + second).flatten().tolist()):
            a, b = sorted((self._root(pair // count), self._root(pair % count)))
            self._parent[b] = a

    def _fix(self, *values: Any) -> None:
        """Fix all units of some tensors."""
        for value in values:
            if isinstance(value, Tensor):
                for label in (self._labels.get(value), *self._units.get(value, ())):
                    self._tie(label, None)

    def _fix_unless_uniform(self, labels: Sequence[Tensor], value: Tensor) -> None:
        """Fix units that a tensor without a label may treat differently, and its own."""
        self._fix(value)
        for label in labels:
            shape = (1,) * (label.dim() - value.dim()) + tuple(value.shape)
            if any(
                size > 1 and bool((label.amin(d) != label.amax(d)).any())
                for d, size in enumerate(shape)
            ):
                self._tie(label, None)

    def _rows_and_columns(self, weight: Any) -> Labels:
        """The units of a map's outputs and of its inputs."""
        if weight not in self._units:
            self._fix(weight)
        return [*self._units.get(weight, ()), None, None][:2]

    # -- operations

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        given = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        results = out if isinstance(out, list | tuple) else [out]
        name = getattr(func, "__name__", "").strip("_")
        if not any(isinstance(result, Tensor) for result in results):
            if name in READS:
                self._fix(*given)
            return out
        self._used.update(value for value in given if value in self._units)
        rule = RULES.get(name, UnitTracker._unknown)
        labels = rule(self, Operation(func, args, kwargs, given, out))
        for result, label in zip_longest(results, labels):
            self._labels.pop(result, None)
            if label is not None:
                self._labels[result] = label
        return out

    def _unknown(self, op: Operation) -> Labels:
        self._fix(*op.given)
        return []

    def _elementwise(self, op: Operation) -> Labels:
        labels = [
            self._labels[value].expand(op.out.shape).contiguous()
            for value in op.given
            if value in self._labels
        ]
        for value in op.given:
            if value not in self._labels:
                self._fix_unless_uniform(labels, value)
        for label in labels[1:]:
            self._tie(labels[0], label)
        return labels[:1]

    def _cast(self, op: Operation) -> Labels:
        if op.args[0] not in self._labels:
            self._fix(op.args[0])
        return [self._labels.get(op.args[0])]

    def _move(self, op: Operation) -> Labels:
        """Move the labels as the entries are moved."""
        label = self._labels.get(op.args[0]) if op.args else None
        if label is None or len(op.given) > 1:
            return self._unknown(op)
        try:
            moved = op.function(label, *op.args[1:], **op.kwargs)
        except RuntimeError:  # a view that the other layout in memory does not have
            return self._unknown(op)
        found = moved if isinstance(moved, list | tuple) else [moved]
        return found if found[0].dtype == label.dtype else self._unknown(op)

    def _map(self, op: Operation) -> Labels:
        """A linear map or a convolution."""
        names = ("input", "weight", "bias", "stride", "padding", "dilation", "groups")
        x, weight, bias, *_, groups = op.arguments(*names)
        axis = 1 - weight.dim()
        rows, columns = self._rows_and_columns(weight)
        label = self._labels.get(x)
        if groups in (None, 1):
            self._tie(label, _along(columns, x, axis))
        elif groups == weight.shape[0] and weight.shape[1] == 1:  # one channel to one channel
            self._tie(label, _along(rows, x, axis))
        else:
            self._fix(x, weight)
        if bias is not None:
            self._tie(rows, self._labels.get(bias))
        return [_along(rows, op.out, axis)]

    def _norm(self, op: Operation) -> Labels:
        """A norm with one entry per channel."""
        x, *own = op.given
        if any(value.dim() > 1 for value in own):
            return self._unknown(op)
        axis = -1 if op.function.__name__ in ("layer_norm", "rms_norm") else 1
        for value in own:
            if value.numel() > 1:
                self._tie(self._labels.get(x), _along(self._labels.get(value), x, axis))
        return [self._labels.get(x)]

    def _product(self, op: Operation) -> Labels:
        """Products of matrices, one for each head: attention."""
        count = 3 if "attention" in op.function.__name__ else 2
        factors, mask = op.given[:count], op.given[count:]
        labels = [self._labels.get(value) for value in factors]
        heads = [label[..., :1, :1] for label in labels if label is not None and label.dim() > 2]
        if len(heads) < len(factors) or len({head.shape for head in heads}) > 1:
            return self._unknown(op)
        for label, head in zip(labels, heads, strict=True):
            self._tie(label, head)
            self._tie(head, heads[0])
        for value in mask:
            self._fix_unless_uniform(heads[:1], value)
        return [heads[0].expand(op.out.shape).contiguous()]

    def _multi_head_attention(self, op: Operation) -> Labels:
        """The attention of `nn.MultiheadAttention`, which is one function."""
        named = inspect.signature(op.function).bind(*op.args, **op.kwargs).arguments
        rows, columns = self._rows_and_columns(named["out_proj_weight"])
        further = ("bias_k", "bias_v", "static_k", "static_v")
        if columns is None or any(named.get(name) is not None for name in further):
            return self._unknown(op)
        units = columns.reshape(named["num_heads"], -1)
        heads = units[:, :1]
        self._tie(units, heads)
        self._tie(rows, None)
        self._fix(*(named[name] for name in ("query", "key", "value", "out_proj_bias")))
        for name in ("in_proj_weight", "in_proj_bias", *(f"{x}_proj_weight" for x in "qkv")):
            if named.get(name) is not None:
                rows, columns = self._rows_and_columns(named[name])
                self._tie(columns, None)
                # The rows are those of queries, keys and values, or of one of them.
                self._tie(rows if rows is None else rows.reshape(-1, *units.shape), heads)
        mask = named.get("attn_mask")
        if mask is not None and mask.dim() > 2:  # one for each head
            self._tie(heads, None)
        return []


MAPS = ("linear", "conv1d", "conv2d", "conv3d")
NORMS = ("batch_norm", "instance_norm", "layer_norm", "rms_norm", "prelu")
PRODUCTS = ("matmul", "bmm", "scaled_dot_product_attention")
RULES: dict[str, Callable[[UnitTracker, Operation], Labels]] = {
    **dict.fromkeys(ELEMENTWISE, UnitTracker._elementwise),
    **dict.fromkeys(MOVES, UnitTracker._move),
    **dict.fromkeys(CASTS, UnitTracker._cast),
    **dict.fromkeys(MAPS, UnitTracker._map),
    **dict.fromkeys(NORMS, UnitTracker._norm),
    **dict.fromkeys(PRODUCTS, UnitTracker._product),
    "multi_head_attention_forward": UnitTracker._multi_head_attention,
}


def _along(ids: Tensor | None, like: Tensor, axis: int) -> Tensor | None:
    """The label of a tensor whose units are the entries of one dimension."""
    if ids is None:
        return None
    shape = [1] * like.dim()
    shape[axis] = -1
    return ids.reshape(shape).expand(like.shape).contiguous()
