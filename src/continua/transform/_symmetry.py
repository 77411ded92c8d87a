"""Which units of a module can change places."""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

#: operations that treat all units alike, by the name of the function without underscores
ALIKE = frozenset([
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


class Units(TorchFunctionMode):
    r"""Follows hidden units through the operations of a module.

    A unit is a set of rows, columns and entries of the module's tensors that belong together: row
    i of a map, entry i of the norm behind it, column i of the next map. Every row and column
    starts as a unit of its own. While the module runs, each tensor is labelled with the units
    that its entries belong to, and an operation makes one unit of those that it relates. An
    operation that is not known fixes the units it sees, and so do the state and the output.

    Args:
        tensors: those of the module that may be permuted, by name.
    """

    def __init__(self, tensors: Mapping[str, Tensor]):
        super().__init__()
        self._parent = [0]  # unit 0 is all that is fixed
        self._own = {id(value): name for name, value in tensors.items()}
        self._ids: dict[tuple[str, int], Tensor] = {}
        self._labels: dict[int, Tensor] = {}
        self._kept: list[Any] = list(tensors.values())  # or ids would be given again
        self._used: set[str] = set()
        for name, value in tensors.items():
            for dim in range(min(value.dim(), 2)):
                size = value.shape[dim]
                if size > 1:  # one entry broadcasts and is no unit
                    first = len(self._parent)
                    self._parent += range(first, first + size)
                    self._ids[name, dim] = torch.arange(first, first + size)
            if value.dim() == 1 and (name, 0) in self._ids:
                self._labels[id(value)] = self._ids[name, 0]

    def groups(self, out: Any) -> list[Group]:
        """The units that can change places with one another, after a run.

        Args:
            out: what the module returned.
        """
        self._fix(*(leaf for leaf in tree_leaves(out) if isinstance(leaf, Tensor)))
        units: dict[int, dict[tuple[str, int], list[int]]] = defaultdict(lambda: defaultdict(list))
        for (name, dim), ids in self._ids.items():
            for position, unit in enumerate(ids.tolist()):
                if name in self._used and self._root(unit) != 0:
                    units[self._root(unit)][name, dim].append(position)
        alike: dict[Any, list[Any]] = defaultdict(list)
        for unit in units.values():
            alike[tuple((where, len(positions)) for where, positions in unit.items())].append(unit)
        return [
            {where: torch.tensor([unit[where] for unit in members]) for where in members[0]}
            for members in alike.values()
            if len(members) > 1
        ]

    # -- units

    def _root(self, unit: int) -> int:
        while self._parent[unit] != unit:
            self._parent[unit] = self._parent[self._parent[unit]]
            unit = self._parent[unit]
        return unit

    def _tie(self, one: Tensor | None, other: Tensor | None) -> None:
        """Make one unit of those that meet in two labels; without a label it is a fixed one."""
        if one is None and other is None:
            return
        zero = torch.zeros((), dtype=torch.int64)
        one, other = (zero if label is None else label for label in (one, other))
        count = len(self._parent)
        pairs: Tensor = (one * count + other).unique()  # type: ignore[no-untyped-call]
        for pair in pairs.tolist():
            a, b = sorted((self._root(pair // count), self._root(pair % count)))
            self._parent[b] = a

    def _fix(self, *tensors: Any) -> None:
        """Fix all units of some tensors."""
        for value in tensors:
            if isinstance(value, Tensor):
                self._tie(self._labels.get(id(value)), None)
                for dim in range(2):
                    self._tie(self._ids.get((self._own.get(id(value), ""), dim)), None)

    def _of(self, value: Any) -> Tensor | None:
        return self._labels.get(id(value))

    def _dims(self, weight: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """The units of a map's outputs and of its inputs."""
        name = self._own.get(id(weight))
        if name is None:
            self._fix(weight)
            return None, None
        return self._ids.get((name, 0)), self._ids.get((name, 1))

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
        self._used |= {self._own[id(value)] for value in given if id(value) in self._own}
        rule = getattr(self, f"_on_{RULES.get(name, 'unknown')}")
        labels = rule(func, args, kwargs, given, out)
        for result, label in zip(results, labels, strict=True):
            if label is not None and label.shape != result.shape:
                self._tie(label, None)
                label = None
            self._labels.pop(id(result), None)
            if label is not None:
                self._labels[id(result)] = label
            self._kept.append(result)
        return out

    def _on_unknown(self, _f: Any, _a: Any, _k: Any, given: Sequence[Tensor], out: Any) -> Any:
        self._fix(*given)
        return [None] * (len(out) if isinstance(out, list | tuple) else 1)

    def _on_alike(self, _f: Any, _a: Any, _k: Any, given: Sequence[Tensor], out: Any) -> Any:
        """Entry by entry, broadcast."""
        labels = [self._expanded(self._of(value), out) for value in given]
        known = [label for label in labels if label is not None]
        for value, label in zip(given, labels, strict=True):
            if label is None:
                self._beside(known, value)
        for label in known[1:]:
            self._tie(known[0], label)
        return known[:1] or [None]

    def _on_cast(self, _f: Any, args: Any, _k: Any, _given: Sequence[Tensor], out: Any) -> Any:
        if id(args[0]) in self._own and args[0].dim() > 1:
            self._fix(args[0])
        return [self._of(args[0])]

    def _expanded(self, label: Tensor | None, out: Tensor) -> Tensor | None:
        return None if label is None else label.expand(out.shape).contiguous()

    def _beside(self, labels: Sequence[Tensor], value: Tensor) -> None:
        """Fix units that a tensor without label tells apart."""
        self._fix(value)
        for label in labels:
            shape = (1,) * (label.dim() - value.dim()) + tuple(value.shape)
            if any(
                shape[d] > 1 and bool((label.amin(d) != label.amax(d)).any())
                for d in range(label.dim())
            ):
                self._tie(label, None)

    def _on_move(self, func: Any, args: Any, kwargs: Any, given: Sequence[Tensor], out: Any) -> Any:
        """What becomes of entries becomes of their labels."""
        label = self._of(args[0]) if args else None
        if label is None or len(given) > 1:
            return self._on_unknown(func, args, kwargs, given, out)
        try:
            moved = func(label, *args[1:], **kwargs)
        except RuntimeError:  # a view that the other layout in memory does not have
            return self._on_unknown(func, args, kwargs, given, out)
        found = moved if isinstance(moved, list | tuple) else [moved]
        if found[0].dtype != label.dtype:
            return self._on_unknown(func, args, kwargs, given, out)
        return found

    def _on_linear(self, func: Any, args: Any, kwargs: Any, given: Any, out: Tensor) -> Any:
        x, weight, bias = _bound(("input", "weight", "bias"), args, kwargs)
        return self._map(x, weight, bias, 1, out, -1)

    def _on_conv(self, func: Any, args: Any, kwargs: Any, given: Any, out: Tensor) -> Any:
        names = ("input", "weight", "bias", "stride", "padding", "dilation", "groups")
        x, weight, bias, *_, groups = _bound(names, args, kwargs)
        return self._map(x, weight, bias, groups or 1, out, 1 - weight.dim())

    def _map(self, x: Any, weight: Any, bias: Any, groups: int, out: Tensor, axis: int) -> Any:
        rows, columns = self._dims(weight)
        label = self._of(x)
        if groups == 1:
            self._tie(label, _along(columns, x, axis))
        elif groups == weight.shape[0] and weight.shape[1] == 1:  # one channel to one channel
            self._tie(label, _along(rows, x, axis))
        else:
            self._fix(x, weight)
        if bias is not None:
            self._tie(rows, self._of(bias))
        return [_along(rows, out, axis)]

    def _on_norm(self, func: Any, args: Any, kwargs: Any, given: Any, out: Tensor) -> Any:
        """A norm with one entry per channel."""
        axis = 1
        if func.__name__ in ("layer_norm", "rms_norm"):
            axis = -1
            if len(args[1] if len(args) > 1 else kwargs["normalized_shape"]) > 1:
                return self._on_unknown(func, args, kwargs, given, out)
        x, *own = given
        for value in own:
            if value.numel() > 1:
                self._tie(self._of(x), _along(self._of(value), x, axis))
        return [self._of(x)]

    def _on_product(self, func: Any, args: Any, kwargs: Any, given: Any, out: Tensor) -> Any:
        """Products of matrices, one for each head: attention."""
        factors, mask = (given[:3], given[3:]) if "attention" in func.__name__ else (given, [])
        heads = [
            label[..., :1, :1]
            for value in factors
            if (label := self._of(value)) is not None and label.dim() > 2
        ]
        if len(heads) < len(factors) or len({head.shape for head in heads}) > 1:
            return self._on_unknown(func, args, kwargs, given, out)
        for value, head in zip(factors, heads, strict=True):
            self._tie(self._of(value), head)
            self._tie(head, heads[0])
        for value in mask:
            self._beside(heads[:1], value)
        return [self._expanded(heads[0], out)]

    def _on_heads(self, func: Any, args: Any, kwargs: Any, given: Any, out: Any) -> Any:
        """The attention of `nn.MultiheadAttention`, which is one function."""
        named = inspect.signature(func).bind(*args, **kwargs).arguments
        count, output = named["num_heads"], named["out_proj_weight"]
        maps = [
            (named["in_proj_weight"], 3),
            (named.get("in_proj_bias"), 3),
            *((named.get(f"{which}_proj_weight"), 1) for which in "qkv"),
        ]
        heads = self._dims(output)[1]
        further = ("bias_k", "bias_v", "static_k", "static_v")
        if heads is not None and all(named.get(name) is None for name in further):
            heads = heads.reshape(count, -1)
            self._tie(heads, heads[:, :1])
            for value, parts in maps:
                if value is not None:
                    rows, columns = self._dims(value)
                    self._tie(
                        None if rows is None else rows.reshape(parts, count, -1), heads[:, :1]
                    )
                    self._tie(columns, None)
            rest = [named["query"], named["key"], named["value"], named["out_proj_bias"]]
            self._fix(*rest)
            self._tie(self._dims(output)[0], None)
            mask = named.get("attn_mask")
            if isinstance(mask, Tensor) and mask.dim() > 2:  # one for each head
                self._tie(heads, None)
        else:
            self._fix(*given)
        return [None, None]


RULES = (
    dict.fromkeys(ALIKE, "alike")
    | dict.fromkeys(MOVES, "move")
    | dict.fromkeys(CASTS, "cast")
    | dict.fromkeys(("conv1d", "conv2d", "conv3d"), "conv")
    | dict.fromkeys(("batch_norm", "instance_norm", "layer_norm", "rms_norm", "prelu"), "norm")
    | dict.fromkeys(("matmul", "bmm", "scaled_dot_product_attention"), "product")
    | {"linear": "linear", "multi_head_attention_forward": "heads"}
)


def _bound(names: Sequence[str], args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    """The arguments of a function by the order of their names."""
    given = dict(zip(names, args, strict=False)) | dict(kwargs)
    return [given.get(name) for name in names]


def _along(ids: Tensor | None, like: Tensor, axis: int) -> Tensor | None:
    """The label of a tensor whose units are the entries of one dimension."""
    if ids is None:
        return None
    shape = [1] * like.dim()
    shape[axis] = -1
    return ids.reshape(shape).expand(like.shape).contiguous()
