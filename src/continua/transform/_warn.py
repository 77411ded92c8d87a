"""Warnings about smaller models."""

from __future__ import annotations

import logging
import math
import warnings
from typing import Any

import torch
from torch import nn

from continua.basis import sample
from continua.block import ODEBlock
from continua.field import copied, listed, non_negative, tensor
from continua.solve import Euler

from ._batches import REFUSALS, call, comparable, relative_error
from ._layers import LayerBlock
from ._stacking import Increment, hidden

#: relative error of the outputs from which it is logged
FAR = 0.5
LOG = logging.getLogger(__name__)


def warn_beside(name: str, block: ODEBlock) -> None:
    """Warn of what a model has for each of its layers, of which there are fewer now."""
    if not isinstance(block, LayerBlock) or block.steps == block.layout.units:
        return
    if block.layout.beside:
        warnings.warn(
            f"block {name!r} has {len(block)} layers now, and the model has an entry in "
            f"{listed(block.layout.beside)} for each layer that it had: "
            "a layer gets the entry at its new place, not its own",
            stacklevel=3,
        )


def warn_post_norm(name: str, block: ODEBlock) -> None:
    """Warn of layers that end in a norm and are run with steps of another length than 1.

    Such a layer replaces its state: z + layer(z) - z. A longer step goes beyond, and the norm does
    not bring it back.
    """
    start, end = block.span
    euler = isinstance(block.solver, Euler) and block.solver.steps == abs(end - start)
    if isinstance(block.field, Increment) and not euler and _ends_in_norm(block):
        warnings.warn(
            f"the layers{_of(name)} end in a norm, and {block.solver!r} over the span "
            f"{block.span} takes other steps than those of length 1 that they were made for; "
            "compress with method='fit', which keeps the length of a step",
            stacklevel=3,
        )


def warn_negative(name: str, block: ODEBlock) -> None:
    """Warn of re-estimated variances that are negative at some depth of the solver.

    Few functions cannot follow a variance that changes by orders of magnitude over depth. It is
    read as 0 there, which divides by nearly nothing.
    """
    for key, basis in block.expansion.state.items():
        if block.plan is None or block.expansion.constraints.get(key) is not non_negative:
            continue
        stack = tensor(block.field, key).detach().cpu().double().flatten(1)
        values = sample(basis, block.plan.points) @ stack  # [S, n]
        if bool((values < -1e-6 * stack.abs().max()).any()):
            warnings.warn(
                f"{key!r}{_of(name)} is negative at some depths in {basis!r}, which cannot follow "
                "the variances there, and the accuracy may be lost; give the statistics a basis of "
                f"their own: state_basis=PiecewiseConstant({block.solver.steps or 8})",
                stacklevel=3,
            )
            return


def warn_swapped(small: nn.Module, teacher: nn.Module) -> None:
    """Warn of a model to heal that has more parameters than its teacher."""
    ours, theirs = (sum(p.numel() for p in model.parameters()) for model in (small, teacher))
    if ours > theirs:
        warnings.warn(
            f"the model to heal has {ours:,} parameters and its teacher {theirs:,}; the smaller "
            "model comes first: heal(small, teacher, batches)",
            stacklevel=3,
        )


@torch.no_grad()
def log_error(model: nn.Module, small: nn.Module, batch: Any, remedy: str) -> None:
    """Log how far the outputs are from those of the larger model, if they are far."""
    found, target = (call(copied(one).eval(), batch) for one in (small, model))
    if not comparable(target):
        return
    error = math.sqrt(float(relative_error(found, target)))
    if not error < FAR:
        LOG.warning(
            "the outputs of the smaller model differ by %.0f %% (relative L2 error, first batch); "
            "%s brings them nearer", 100 * error, remedy,
        )  # fmt: skip


def _of(name: str) -> str:
    return f" of block {name!r}" if name else ""


@torch.no_grad()
def _ends_in_norm(block: ODEBlock) -> bool:
    """Whether the output keeps its size when the input grows, tried out on random numbers."""
    increment: Any = block.at(block.span[0])
    layer = increment.layer.eval()
    norm = next((m for m in layer.modules() if isinstance(m, nn.LayerNorm)), None)
    if norm is None or norm.weight is None:
        return False
    shape, generator = (1, 4, *norm.normalized_shape), torch.Generator().manual_seed(0)
    z = torch.randn(shape, generator=generator).to(norm.weight)
    try:
        one, other = hidden(layer(z)), hidden(layer(1000 * z))
    except REFUSALS:  # it takes more than a state, or another shape
        return False
    return bool(other.norm() < 100 * one.norm())
