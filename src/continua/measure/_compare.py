"""The difference that a change of basis makes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from continua._errors import ArgumentError
from continua._tables import html_table, text_table
from continua.basis import Basis, quadrature
from continua.field import copied, listed, tensor
from continua.transform import Size, blocks, call, size


@dataclass(frozen=True)
class TensorChange:
    """One function of depth before and after."""

    name: str  # of the tensor in the model
    kind: str  # "weight" or "state"
    source: Basis  # its basis before
    target: Basis  # its basis after
    error: float  # the L2 norm over depth of the difference, relative to that of the source


@dataclass(frozen=True)
class OutputChange:
    """The outputs of two models for one input."""

    error: float  # the L2 norm of the difference, relative to that of the source's output
    agreement: float | None  # the share of equal predictions; None for outputs of a single entry


@dataclass(frozen=True, repr=False)
class Comparison:
    """Two models that differ by a change of basis; `print` shows it as a table."""

    source: Size
    target: Size
    tensors: tuple[TensorChange, ...]
    outputs: OutputChange | None = None  # for the input of `compare`, if there was one

    def _sizes(self) -> list[tuple[str, ...]]:
        rows: list[tuple[str, ...]] = [("", "source", "target", "ratio")]
        for label in ("parameters", "state", "bytes", "evaluations"):
            a, b = getattr(self.source, label), getattr(self.target, label)
            counts = ["-" if value is None else f"{value:,}" for value in (a, b)]
            rows.append((label, *counts, f"{b / a:.3f}" if a and b is not None else "-"))
        return rows

    def _changes(self) -> list[tuple[str, ...]]:
        rows = [(c.name, repr(c.source), repr(c.target), f"{c.error:.3e}") for c in self.tensors]
        return [("tensor", "source", "target", "relative L2 error"), *rows]

    def _output_error(self) -> str:
        if self.outputs is None:
            return ""
        text = f"outputs: relative L2 error {self.outputs.error:.3e}"
        if self.outputs.agreement is not None:
            text += f", same prediction {100 * self.outputs.agreement:.2f} %"
        return text

    def __str__(self) -> str:
        parts = [self._output_error(), text_table(self._sizes()), text_table(self._changes())]
        return "\n\n".join(filter(None, parts))

    def __repr__(self) -> str:
        counts = f"{self.source.parameters:,} -> {self.target.parameters:,} parameters"
        worst = max((c.error for c in self.tensors), default=0.0)
        return f"Comparison({counts}, {len(self.tensors)} tensors, largest error {worst:.3e})"

    def _repr_html_(self) -> str:
        return html_table(self._sizes(), self._output_error()) + html_table(self._changes())


def compare(source: nn.Module, target: nn.Module, x: Any = None) -> Comparison:
    """Parameters, bytes, the relative L2 error of each function of depth, and of the outputs.

    Args:
        source: a model that contains ODE blocks.
        target: the same model after `compress` or `refine`.
        x: an input of both, for which outputs and predictions are compared in evaluation mode: a
            tensor, or a tuple or dictionary of what the models are called with.

    Example:
        >>> import continua as ct
        >>> block = ct.ODEBlock(nn.Linear(2, 2), ct.PiecewiseConstant(4), ct.Euler(steps=4))
        >>> print(ct.compare(block, ct.compress(block, ct.PiecewiseConstant(2))))
                     source  target  ratio
        parameters       24      12  0.500
        state             0       0      -
        bytes            96      48  0.500
        evaluations       4       4  1.000
        <BLANKLINE>
        tensor                source                target  relative L2 error
        weight  PiecewiseConstant(4)  PiecewiseConstant(2)          0.000e+00
        bias    PiecewiseConstant(4)  PiecewiseConstant(2)          0.000e+00
    """
    before, after = blocks(source), blocks(target)
    if before.keys() != after.keys():
        raise ArgumentError(
            f"the models have different blocks: {listed(before)} and {listed(after)}"
        )
    changes = []
    for name, a in before.items():
        b = after[name]
        if a.expansion.bases.keys() != b.expansion.bases.keys():
            raise ArgumentError(f"block {name!r} has different tensors in the two models")
        for key, basis in a.expansion.bases.items():
            other = b.expansion.bases[key]
            old, new = tensor(a.field, key), tensor(b.field, key)
            if old.shape[1:] != new.shape[1:]:
                raise ArgumentError(
                    f"{key!r} of block {name!r} has shape {list(old.shape[1:])} in one model "
                    f"and {list(new.shape[1:])} in the other"
                )
            error = relative_error(basis, old, other, new)
            kind = "weight" if key in a.expansion.weights else "state"
            full = f"{name}.{key}" if name else key
            changes.append(TensorChange(full, kind, basis, other, error))
    outputs = None if x is None else _outputs(source, target, x)
    return Comparison(size(source), size(target), tuple(changes), outputs)


@torch.no_grad()
def _outputs(source: nn.Module, target: nn.Module, x: Any) -> OutputChange:
    a, b = (call(copied(model).eval(), x) for model in (source, target))
    if not isinstance(a, Tensor) or not isinstance(b, Tensor) or a.shape != b.shape:
        raise ArgumentError(
            "outputs are compared where both models return one tensor of one shape; wrap both in a "
            "module that returns one"
        )
    if a.numel() == 0:
        raise ArgumentError("the outputs are empty: give compare at least one input")
    wide = torch.promote_types(a.dtype, torch.float64)
    one, other = a.cpu().to(wide), b.cpu().to(wide)
    error = float((one - other).norm()) / (float(one.norm()) or 1.0)
    agreement = None
    if one.dim() > 0 and one.shape[-1] > 1 and not one.is_complex():
        equal = (one.argmax(-1) == other.argmax(-1)) & ~(one + other).isnan().any(-1)
        agreement = float(equal.double().mean())
    return OutputChange(error, agreement)


def relative_error(source: Basis, old: Tensor, target: Basis, new: Tensor) -> float:
    """The L2 norm over depth of the difference of two expansions, relative to the first."""
    s, w = quadrature(source, target)
    root = w.sqrt()[:, None]
    both = torch.cat([root * source(s), -root * target(s)], 1)  # [Q, K + K']
    # The triangular factor has the same norms as all Gauss points, on far fewer rows.
    r = torch.linalg.qr(both, mode="r").R
    wide = torch.promote_types(old.dtype, torch.float64)
    a = old.detach().cpu().to(wide).reshape(source.size, -1)
    b = new.detach().cpu().to(wide).reshape(target.size, -1)
    difference = (r.to(wide) @ torch.cat([a, b])).norm()
    norm = (r[:, : source.size].to(wide) @ a).norm()
    return float(difference) / (float(norm) or 1.0)
