"""A model as an ONNX file."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from continua._errors import ArgumentError, ContinuaError, FileError, ModuleError
from continua.block import ODEBlock
from continua.field import copied
from continua.gradient import Backprop

from ._files import write_files

Dimensions = Mapping[int, str]
BATCH: Dimensions = {0: "batch"}
#: relative to the largest output; single precision is a thousand times better
TOLERANCE = 1e-3


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
) -> Exported:
    r"""Write a model as an ONNX file, in evaluation, with a free batch size.

    Blocks on a fixed grid become plain operators; coefficients are stored once, whatever the number
    of steps, and the file holds nothing of the machine that it was made on. It is compared with
    the model, on the inputs and on twice as many, before it takes its place. Needs the extra
    `export`.

    Args:
        model: any module; it is not changed.
        file: where to write, as in `"model.onnx"`.
        inputs: an example of what the model takes.
        dynamic: the dimensions whose size is free, with a name each: one mapping for all inputs,
            or one for each of them. Dimensions of one name have one size.
        check: whether to compare the file with the model.

    Example:
        >>> import continua as ct
        >>> block = ct.ODEBlock(nn.Linear(2, 2), ct.PiecewiseConstant(4), ct.Euler(steps=4))
        >>> ct.export(block, "/tmp/model.onnx", torch.randn(3, 2))  # doctest: +SKIP
        Exported(file=PosixPath('/tmp/model.onnx'), bytes=1544, opset=20, error=1.0e-07)
    """
    if not isinstance(model, nn.Module):
        raise ArgumentError(f"a model is an nn.Module, not {type(model).__name__}")
    path = Path(file)
    if path.is_dir():
        raise FileError(f"{path} is a folder; name a file in it, such as {path / 'model.onnx'}")
    _check_inputs(inputs)
    free = _free(dynamic, inputs)
    ready = _ready(model)
    examples = tuple(_enough(x, dims) for x, dims in zip(inputs, free, strict=True))
    given = [examples, tuple(_doubled(x, dims) for x, dims in zip(examples, free, strict=True))]
    expected = _outputs(ready, examples)  # what the model refuses, it says better than a tracer
    content, opset = _translated(ready, examples, free)
    error = None
    if check:
        error = _compared(content, given, [expected, _outputs(ready, given[1])])
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_files(path.parent, {path.name: content})
    except OSError as problem:
        raise FileError(f"cannot write {path}: {problem.strerror or problem}") from problem
    return Exported(path, len(content), opset, error)


# -- what goes in ------------------------------------------------------------------------------


def _check_inputs(inputs: Sequence[Any]) -> None:
    if not inputs:
        raise ArgumentError(
            "export needs an example of what the model takes: export(model, file, x)"
        )
    for x in inputs:
        if not isinstance(x, Tensor):
            raise ArgumentError(f"the inputs are tensors, not {type(x).__name__}")


def _free(
    dynamic: Dimensions | Sequence[Dimensions], inputs: Sequence[Tensor]
) -> list[dict[int, str]]:
    """The free dimensions of each input."""
    each = [dynamic] * len(inputs) if isinstance(dynamic, Mapping) else list(dynamic)
    if len(each) != len(inputs):
        raise ArgumentError(
            f"dynamic has {len(each)} mappings for {len(inputs)} inputs; give one for each, or one "
            "for all"
        )
    for x, dims in zip(inputs, each, strict=True):
        for d, name in dims.items():
            if not isinstance(d, int) or not 0 <= d < x.dim() or not isinstance(name, str):
                raise ArgumentError(
                    f"dynamic maps dimensions of an input to names, as in {{0: 'batch'}}; "
                    f"{{{d!r}: {name!r}}} does not do for one of shape {list(x.shape)}"
                )
    return [dict(dims) for dims in each]


def _ready(model: nn.Module) -> nn.Module:
    """A copy in evaluation, whose blocks can be written out."""
    ready = copied(model).eval()
    for block in ready.modules():
        if isinstance(block, ODEBlock):
            if block.solver.schedule(block.span, ()) is None:
                raise ArgumentError(
                    f"{block.solver!r} chooses its steps as it goes, which no file can; choose a "
                    "fixed grid first: continua.compress(model, solver=continua.RK4(steps=8))"
                )
            block.gradient = Backprop()  # others are made of operators that no file has
    return ready.requires_grad_(False)


def _enough(x: Tensor, dims: Dimensions) -> Tensor:
    """The input, at least 2 along free dimensions: a size of 1 would become part of the file."""
    for d in dims:
        if x.shape[d] == 1:
            x = x.repeat_interleave(2, d)
    return x.detach()


@torch.no_grad()
def _outputs(model: nn.Module, inputs: tuple[Tensor, ...]) -> list[Tensor]:
    """The tensors that the model returns."""
    try:
        leaves = pytree.tree_leaves(model(*inputs))
    except ContinuaError:
        raise
    except Exception as error:
        raise ModuleError(
            f"{type(model).__name__} fails on inputs of shape "
            f"{', '.join(str(list(x.shape)) for x in inputs)}: {error}"
        ) from error
    for leaf in leaves:
        if not isinstance(leaf, Tensor):
            raise ModuleError(
                f"{type(model).__name__} returns a {type(leaf).__name__}; ONNX knows tensors only"
            )
    return [leaf.cpu() for leaf in leaves]


def _doubled(x: Tensor, dims: Dimensions) -> Tensor:
    for d in dims:
        x = torch.cat([x, x.flip(d)], d)
    return x


# -- what comes out ----------------------------------------------------------------------------


def _translated(
    model: nn.Module, inputs: tuple[Tensor, ...], free: Sequence[Dimensions]
) -> tuple[bytes, int]:
    try:
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise ArgumentError(
            f"ONNX needs more packages; install with `pip install 'continua[export]'` ({error})"
        ) from error
    known = {name: torch.export.Dim(name) for dims in free for name in dims.values()}
    shapes = tuple({d: known[name] for d, name in dims.items()} for dims in free)
    try:
        with torch.no_grad(), _quiet():
            program = torch.onnx.export(
                model, inputs, dynamo=True, dynamic_shapes=shapes, verbose=False
            )
    except Exception as error:
        names = ", ".join(known)
        hint = f"; if {names} cannot be free in it, give dynamic={{}}" if known else ""
        raise ModuleError(
            f"{type(model).__name__} cannot be written as ONNX: {_reason(error)}{hint}"
        ) from error
    assert program is not None
    for value, dims in zip(program.model.graph.inputs, free, strict=False):
        for d, name in dims.items():
            if value.shape is not None and isinstance(size := value.shape[d], int):
                raise ModuleError(
                    f"{type(model).__name__} works for one size of {name!r} only, {size} in this "
                    f"example; leave it out of dynamic to write it so"
                )
    for node in program.model.graph.all_nodes():
        node.metadata_props.clear()  # where in whose files it comes from
    content = program.model_proto.SerializeToString()
    return content, int(program.model.opset_imports[""])


def _reason(error: BaseException) -> str:
    """The first line of what was said first."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


@contextmanager
def _quiet() -> Iterator[None]:
    """Without what torch says about packages that are not needed here, and about its own code."""
    known = [logging.getLogger(name) for name in logging.root.manager.loggerDict]
    levels = {logger: logger.level for logger in known if logger.name.startswith("torch.")}
    for logger in levels:
        logger.setLevel(logging.CRITICAL)  # an exception says what went wrong
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            warnings.simplefilter("ignore", DeprecationWarning)
            yield
    finally:
        for logger, level in levels.items():
            logger.setLevel(level)


def _compared(
    content: bytes, given: Sequence[Sequence[Tensor]], expected: Sequence[Sequence[Tensor]]
) -> float | None:
    """The relative error of the file; None where nothing can run it."""
    try:
        import onnxruntime
    except ImportError:
        return None
    worst = 0.0
    try:
        session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
        names = [one.name for one in session.get_inputs()]
        for inputs, outputs in zip(given, expected, strict=True):
            fed = {name: x.cpu().numpy() for name, x in zip(names, inputs, strict=True)}
            for found, y in zip(session.run(None, fed), outputs, strict=True):
                scale = float(y.abs().max()) or 1.0
                worst = max(worst, float((torch.as_tensor(found) - y).abs().max()) / scale)
    except Exception as error:
        raise ModuleError(f"the ONNX file cannot be run: {_reason(error)}") from error
    if not worst <= TOLERANCE:
        raise ModuleError(
            f"the ONNX file differs from the model by {worst:.2g} of its largest output and is not "
            "written; check=False would write it"
        )
    return worst
