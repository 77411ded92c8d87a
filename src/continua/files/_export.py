"""A model as an ONNX file."""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.utils import _pytree as pytree

from continua._errors import ArgumentError, ContinuaError, FileError, ModuleError
from continua.field import copied
from continua.gradient import Backprop
from continua.transform import blocks_if_any, converted, revert

from ._disk import write_whole
from ._extras import import_extra
from ._onnx import Dimensions, compare, translate

BATCH: Dimensions = {0: "batch"}


@dataclass(frozen=True)
class Exported:
    """What `export` wrote.

    Attributes:
        file: where it is.
        bytes: of the file.
        opset: the version of the operators in it.
        error: the largest difference between what the file and what the model computes, relative
            to the model's largest output; None where it was not checked.
    """

    file: Path
    bytes: int
    opset: int
    error: float | None

    def __str__(self) -> str:
        checked = "not checked" if self.error is None else f"relative error {self.error:.1e}"
        return f"{self.file}: {self.bytes:,} bytes, ONNX opset {self.opset}, {checked}"


def export(
    model: nn.Module,
    file: str | os.PathLike[str],
    *inputs: Tensor,
    dynamic: Dimensions | Sequence[Dimensions] = BATCH,
    check: bool = True,
    **named: Tensor,
) -> Exported:
    r"""Write a model as an ONNX file, in evaluation mode, with a free batch size.

    Blocks on a fixed grid become plain operators; coefficients are stored once, whatever the number
    of steps, and the file holds nothing of the machine that it was made on. Before it is written,
    it is run and compared with the model, on the inputs and on inputs twice as large if the model
    takes them. Needs the extra `export`.

    Args:
        model: any module; it is not changed.
        file: where to write, as in `"model.onnx"`.
        inputs: an example of what the model takes.
        dynamic: the dimensions whose size is free, with a name each: one mapping for all inputs
            that have them, or one for each input. Dimensions of one name have one size.
        check: whether to compare the file with the model.
        named: inputs that the model takes by name.

    Example:
        >>> import continua as ct
        >>> block = ct.ODEBlock(nn.Linear(2, 2), ct.PiecewiseConstant(4), ct.Euler(steps=4))
        >>> print(ct.export(block, "model.onnx", torch.randn(3, 2)))  # doctest: +SKIP
        model.onnx: 2,292 bytes, ONNX opset 20, relative error 1.4e-07
    """
    evaluated = _evaluation_copy(model)
    path = _checked_path(file)
    examples = (*inputs, *named.values())
    if not examples:
        raise ArgumentError(
            "export needs an example of what the model takes: export(model, file, x)"
        )
    for x in examples:
        if not isinstance(x, Tensor):
            raise ArgumentError(f"the inputs are tensors, not {type(x).__name__}")
        if x.numel() == 0:
            raise ArgumentError(f"an input is empty, of shape {list(x.shape)}: nothing to compare")
    free = _free_dimensions(dynamic, examples)
    if check:
        why = "to compare the file, export runs it in onnxruntime"
        import_extra("onnxruntime", why, "export")
    evaluated = _with_named_inputs(evaluated, len(inputs), tuple(named), type(model).__name__)
    examples = tuple(map(_at_least_two, examples, free))
    expected = _outputs(evaluated, examples)  # the model's errors are clearer than a tracer's
    content, opset = translate(evaluated, examples, free)
    error = None
    if check:
        error = compare(content, examples, expected)
        larger = tuple(map(_doubled, examples, free))
        try:
            expected = _outputs(evaluated, larger)
        except ContinuaError:
            pass  # the model limits the size, of a sentence for example
        else:
            error = max(error, compare(content, larger, expected))
    write_whole(path, content)
    return Exported(path, len(content), opset, error)


def _checked_path(file: Any) -> Path:
    if not isinstance(file, str | os.PathLike) or "\0" in os.fspath(file):
        raise ArgumentError(f"file is a path such as 'model.onnx', not {file!r}")
    path = Path(file)
    if path.is_dir():
        raise FileError(f"{path} is a folder; name a file in it, such as {path / 'model.onnx'}")
    return path


def _free_dimensions(dynamic: Any, inputs: Sequence[Tensor]) -> list[dict[int, str]]:
    """The free dimensions of each input, with their names."""
    each = [dynamic] * len(inputs) if isinstance(dynamic, Mapping) else dynamic
    if not isinstance(each, list | tuple) or not all(isinstance(d, Mapping) for d in each):
        raise ArgumentError(
            "dynamic is a mapping from dimensions to names, as in {0: 'batch'}, or a list of one "
            f"for each input, not {dynamic!r}"
        )
    if len(each) != len(inputs):
        raise ArgumentError(
            f"dynamic has {len(each)} mappings for {len(inputs)} inputs; give one for each, or one "
            "for all"
        )
    largest = max(x.dim() for x in inputs)
    sizes: dict[str, int] = {}
    for x, names in zip(inputs, each, strict=True):
        # One mapping for all inputs names a dimension of those that have it.
        dimensions = largest if each is not dynamic else x.dim()
        for d, name in names.items():
            is_index = isinstance(d, int) and not isinstance(d, bool) and d >= 0
            if not is_index or not isinstance(name, str) or not name.isidentifier():
                raise ArgumentError(
                    "dynamic maps dimensions to names, as in {0: 'batch'}, not "
                    f"{{{d!r}: {name!r}}}"
                )
            if d >= dimensions:
                raise ArgumentError(
                    f"dynamic has {{{d}: {name!r}}}, and an input of shape {list(x.shape)} has no "
                    f"dimension {d}"
                )
            if d < x.dim() and sizes.setdefault(name, x.shape[d]) != x.shape[d]:
                raise ArgumentError(
                    f"{name!r} is {sizes[name]} in one input and {x.shape[d]} in another; give "
                    "them other names in dynamic, or one size"
                )
    return [
        {d: name for d, name in names.items() if d < x.dim()}
        for x, names in zip(inputs, each, strict=True)
    ]


def _evaluation_copy(model: nn.Module) -> nn.Module:
    """A copy in evaluation mode, whose blocks can be written as ONNX."""
    for block in blocks_if_any(model).values():
        if block.solver.adaptive:
            raise ArgumentError(
                f"{block.solver!r} chooses its steps as it goes, which no file can; choose a "
                "fixed grid first: continua.compress(model, solver=continua.RK4(steps=8))"
            )
    # The layers of a converted model are written as they are.
    made = (revert(model) if converted(model) else copied(model)).eval().requires_grad_(False)
    for block in blocks_if_any(made).values():
        block.gradient = Backprop()  # ONNX has no operators for the others
    return made


def _with_named_inputs(
    model: nn.Module, count: int, named: Sequence[str], class_name: str
) -> nn.Module:
    """The model behind a forward with one name for each input, whatever its own looks like."""
    parameters = inspect.signature(model.forward).parameters.values()
    own = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    names = [own[i] if i < len(own) else f"input_{i}" for i in range(count)]
    graph = fx.Graph()
    positional = tuple(map(graph.placeholder, names))
    graph.output(graph.call_module("model", positional, {n: graph.placeholder(n) for n in named}))
    return fx.GraphModule({"model": model}, graph, class_name=class_name).eval()


def _at_least_two(x: Tensor, dims: Dimensions) -> Tensor:
    """The input, of at least 2 along free dimensions: a size of 1 would be fixed in the file."""
    for d in dims:
        if x.shape[d] == 1:
            x = x.repeat_interleave(2, d)
    return x.detach()


def _doubled(x: Tensor, dims: Dimensions) -> Tensor:
    """The input, twice as large along free dimensions."""
    for d in dims:
        x = torch.cat([x, x.flip(d)], d)
    return x


@torch.no_grad()
def _outputs(model: nn.Module, inputs: Sequence[Tensor]) -> list[Tensor]:
    """The tensors that the model returns."""
    name = type(model).__name__
    try:
        leaves = pytree.tree_leaves(model(*(x.clone() for x in inputs)))
    except ContinuaError:
        raise
    except Exception as error:
        shapes = ", ".join(str(list(x.shape)) for x in inputs)
        raise ModuleError(f"{name} fails on inputs of shape {shapes}: {error}") from error
    for leaf in leaves:
        if not isinstance(leaf, Tensor):
            raise ModuleError(
                f"{name} returns something of type {type(leaf).__name__}; ONNX knows tensors only"
            )
    return [leaf.cpu() for leaf in leaves]
