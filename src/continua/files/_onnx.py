"""The content of an ONNX file, and what it computes."""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr
from threading import Lock

import torch
from torch import Tensor, nn

from continua._errors import ModuleError, first_line

from ._extras import import_extra

Dimensions = Mapping[int, str]
#: the largest accepted difference from the model, relative to its largest output
TOLERANCE, HALF_TOLERANCE = 1e-3, 5e-2
HALF = (torch.float16, torch.bfloat16)

_tracing = Lock()  # torch traces one model at a time


def translate(
    model: nn.Module, inputs: Sequence[Tensor], free: Sequence[Dimensions]
) -> tuple[bytes, int]:
    """The content of an ONNX file that computes what the model computes, and its opset."""
    import_extra("onnxscript", "ONNX needs more packages", "export")
    kind = type(model).__name__
    symbols = {name: torch.export.Dim(name) for dims in free for name in dims.values()}
    shapes = tuple({d: symbols[name] for d, name in dims.items()} for dims in free)
    examples = tuple(x.clone() for x in inputs)
    try:
        with _tracing, torch.no_grad(), _quiet():
            program = torch.onnx.export(
                model, examples, dynamo=True, dynamic_shapes=shapes, verbose=False
            )
    except Exception as error:
        reason, hint = _reason(error), ""
        if "onstraint" in reason or any(repr(name) in reason for name in symbols):
            hint = f"; if {', '.join(symbols)} cannot be free in it, give dynamic={{}}"
        raise ModuleError(f"{kind} cannot be written as ONNX: {reason}{hint}") from error
    assert program is not None
    for value, dims in zip(program.model.graph.inputs, free, strict=False):
        for d, name in dims.items():
            if value.shape is not None and isinstance(size := value.shape[d], int):
                raise ModuleError(
                    f"{kind} works for one size of {name!r} only, {size} in this example; leave it "
                    "out of dynamic to write it so"
                )
    for node in program.model.graph.all_nodes():
        node.metadata_props.clear()  # paths of source files
    try:
        content = program.model_proto.SerializeToString()
    except Exception as error:
        raise ModuleError(
            f"{kind} is too large for one ONNX file, which holds 2 GB at most: {_reason(error)}"
        ) from error
    return content, int(program.model.opset_imports[""])


def _reason(error: BaseException) -> str:
    """The first line of the message of the error that caused this one."""
    while error.__cause__ is not None:
        error = error.__cause__
    return first_line(error)


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence torch's warnings, logs and output; exceptions still say what went wrong."""
    names = [name for name in logging.root.manager.loggerDict if name.startswith("torch.")]
    levels = {name: logging.getLogger(name).level for name in names}
    for name in names:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)


def compare(content: bytes, inputs: Sequence[Tensor], expected: Sequence[Tensor]) -> float:
    """The largest difference from the model's outputs; an error if it exceeds the tolerance."""
    import onnxruntime

    try:
        session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
        names = [value.name for value in session.get_inputs()]
        arrays = {name: x.cpu().numpy() for name, x in zip(names, inputs, strict=True)}
        found = [torch.as_tensor(y) for y in session.run(None, arrays)]
    except Exception as error:
        raise ModuleError(
            f"the ONNX file cannot be run: {_reason(error)}; check=False would write it"
        ) from error
    if [y.shape for y in found] != [y.shape for y in expected]:
        raise ModuleError(
            f"the ONNX file returns {[list(y.shape) for y in found]} where the model returns "
            f"{[list(y.shape) for y in expected]}"
        )
    largest = 0.0
    for y, e in zip(found, expected, strict=True):
        gap = distance(y, e)
        if gap > (HALF_TOLERANCE if e.dtype in HALF else TOLERANCE):
            raise ModuleError(
                f"the ONNX file differs from the model by {gap:.2g} of its largest output, and "
                "is not written; check=False would write it"
            )
        largest = max(largest, gap)
    return largest


def distance(found: Tensor, expected: Tensor) -> float:
    """The largest difference, relative to the largest value.

    It is infinite if integers differ, or if infinities or NaNs are in different places.
    """
    if not expected.is_floating_point():
        return 0.0 if torch.equal(found, expected) else float("inf")
    finite = expected.isfinite()
    if not torch.equal(found.isfinite(), finite):
        return float("inf")
    if not torch.equal(found[~finite].nan_to_num(), expected[~finite].nan_to_num()):
        return float("inf")
    if not bool(finite.any()):
        return 0.0
    e = expected[finite].double()
    return float((found[finite].double() - e).abs().max()) / (float(e.abs().max()) or 1.0)
