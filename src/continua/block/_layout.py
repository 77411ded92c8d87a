"""Stacks of kernels in memory, a block at one depth, and a block in words."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, get_args

import torch
from torch import Tensor, nn

from continua._errors import ArgumentError
from continua._tables import html_table
from continua.basis import Basis, Side
from continua.field import Sampling, copied, put, tensor, values_at
from continua.gradient import Backprop
from continua.solve import Stage, sides

from ._dynamics import called

if TYPE_CHECKING:
    from ._block import ODEBlock


def per_kernel(fn: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """A conversion that also takes a stack of images' kernels.

    `model.to(memory_format=torch.channels_last)` refuses five dimensions; on a stack of
    kernels it means each kernel.
    """

    def convert(t: Tensor) -> Tensor:
        try:
            return fn(t)
        except RuntimeError as error:
            if t.dim() != 5 or "channels_last" not in str(error):
                raise
            rows = [fn(row).permute(0, 2, 3, 1) for row in t.unbind(0)]
            return torch.stack(rows).permute(0, 1, 4, 2, 3)

    return convert


def common_basis(bases: Mapping[str, Basis]) -> Basis | dict[str, Basis]:
    """The one basis of all tensors; where there are several or none, the basis by name."""
    different = set(bases.values())
    return different.pop() if len(different) == 1 else dict(bases)


def html(block: ODEBlock) -> str:
    """A block for a notebook."""
    rows = [pair for line in describe(block) for pair in line]
    return html_table([("ODEBlock", type(block.field).__name__), *rows])


def describe(block: ODEBlock) -> list[list[tuple[str, str]]]:
    """The lines of a block's repr, each of names with their values."""
    weights, state = block.expansion.weights, block.expansion.state
    lines = [[("basis", summary(weights))]]
    if state and (set(state.values()) != set(weights.values())):
        lines.append([("state_basis", summary(state))])
    span = f"({block.span[0]:g}, {block.span[1]:g})"
    lines.append([("solver", repr(block.solver)), ("span", span)])
    if block.gradient != Backprop():
        lines.append([("gradient", repr(block.gradient))])
    count = sum(p.numel() for p in block.parameters())
    scalars = sum(tensor(block.field, name).numel() for name in state)
    lines.append([("parameters", f"{count:,}"), ("state", f"{scalars:,}")])
    return lines


def summary(bases: Mapping[str, Basis]) -> str:
    """The bases in use, and how many tensors use each where there are several."""
    counts = Counter(bases.values())
    if len(counts) == 1:
        return repr(next(iter(counts)))
    return ", ".join(f"{basis!r} for {n}" for basis, n in counts.items()) or "none"


def checked_depth(s: Any) -> float:
    """The depth, if it is a finite number; a tensor or an array of one number is one, too."""
    try:
        depth = float(s)
    except (TypeError, ValueError):
        depth = math.nan
    if isinstance(s, str) or not math.isfinite(depth):
        raise ArgumentError(f"a depth is a finite number, not {s!r}")
    return depth


def module_at(block: ODEBlock, s: float, side: Side) -> nn.Module:
    """The plain module at one depth, its tensors detached copies."""
    if side not in get_args(Side):
        raise ArgumentError(f"side is 'left' or 'right', not {side!r}")
    module, point = copied(block.field), block.stretch.point(s, side)
    bases = block.expansion.bases
    coefficients = {name: tensor(module, name).detach() for name in bases}
    samplings = {basis: Sampling.of(basis, [point]) for basis in set(bases.values())}
    device = next((stack.device for stack in coefficients.values()), None)
    rows = {b: None if s.rows is None else s.rows.to(device) for b, s in samplings.items()}
    found = values_at(bases, coefficients, rows, block.expansion.constraints)
    for name, values in found.items():
        row = samplings[bases[name]].index[0]
        put(module, block.expansion.names(name), values[row].clone())
    return module


def weight_vjp(block: ODEBlock, s: float, z: Tensor, a: Tensor, control: Any) -> dict[str, Tensor]:
    """The vector-Jacobian product of the field with its weights at one depth."""
    s = checked_depth(s)
    side = sides(*block.span)[int(s == block.span[1])]
    with called(block, z, (), {}, control).backward_field() as field, torch.enable_grad():
        reading = field.read([Stage(s, side)])
        (out,) = reading.evaluate[0]((z.detach(),))
    names = [n for n in block.expansion.weights if tensor(block.field, n).requires_grad]
    if not names:
        return {}
    leaves = reading.leaves[: len(names)]
    found = torch.autograd.grad(out, leaves, a, allow_unused=True)
    return {
        name: torch.zeros_like(leaf) if g is None else g
        for name, leaf, g in zip(names, leaves, found, strict=True)
    }
