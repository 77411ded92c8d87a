"""The fields that a flow integrates: the change of density beside the state."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.func import vjp, vmap

from continua._errors import ContinuaError, ShapeError
from continua.block import ODEBlock
from continua.field import Field, evaluated, tensor

Trace = Literal["exact", "hutchinson"]
Regulariser = Literal["kinetic", "jacobian"]


class Divergence(Field):
    """The field f of a flow, with the change of the log-density beside it.

    On z it is f; on (z, log-density) it is (f, tr df/dz); on (z, log-density, cost) the third part
    is a regulariser, |f|^2 or |noise^T df/dz|^2.
    """

    reads_depth = False

    def __init__(self, field: nn.Module, trace: Trace):
        super().__init__()
        self.field, self.trace = field, trace

    def forward(
        self,
        s: Tensor,
        z: Any,
        x: Any,
        noise: Tensor | None = None,
        regulariser: Regulariser = "kinetic",
    ) -> Any:
        if isinstance(z, Tensor):
            return _checked(self.field, s, z, x)
        wanted = torch.is_grad_enabled()
        with torch.enable_grad():
            state = _tracked(z[0])
            f = _checked(self.field, s, state, x)
            if f.shape != state.shape:
                raise ShapeError(
                    f"the field maps {list(state.shape)} to {list(f.shape)}; dz/ds must have the "
                    "shape of z"
                )
            product = f
            if noise is not None:
                exact = self.trace == "exact"  # which differentiates f once more
                (product,) = torch.autograd.grad(
                    f, state, noise, create_graph=wanted, retain_graph=wanted or exact
                )
            if self.trace == "hutchinson":
                assert noise is not None
                change = (product * noise).sum(1)
            else:
                change = _trace(f, state, wanted)
            parts = [f, change]
            if len(z) == 3:
                parts.append((f if regulariser == "kinetic" else product).square().sum(1))
        return tuple(parts) if wanted else tuple(part.detach() for part in parts)


class Carried(Field):
    """The field on (z, dz/dc), where its control c is the prior's sample."""

    reads_depth = False

    def __init__(self, field: nn.Module):
        super().__init__()
        self.field = field

    def forward(self, s: Tensor, z: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
        state, jacobian = z

        # The state depends on the sample too: the total derivative is df/dz dz/dc + df/dc.
        def f(state: Tensor, seen: Tensor) -> Tensor:
            return _checked(self.field, s, state, seen)

        slope, pull = vjp(f, state, x)  # type: ignore[misc]
        rows = []
        for i in range(slope.shape[1]):
            unit = torch.zeros_like(slope)
            unit[:, i] = 1
            by_state, by_sample = pull(unit)
            rows.append((by_state.unsqueeze(1) @ jacobian).squeeze(1) + by_sample)
        return slope, torch.stack(rows, 1)  # [B, D, D]


def slopes(block: ODEBlock, s: Tensor, z: Tensor, x: Tensor) -> Tensor:
    """The field of a block with constant weights, `[B, D]`: each sample at a depth of its own.

    Args:
        block: no weight of which varies with depth.
        s: the depths, `[B]`.
        z: the states, `[B, D]`.
        x: what the field sees of each sample, `[B, ...]`.
    """
    twin = block.twins.take(block.field, block.expansion)

    def one(s: Tensor, z: Tensor, x: Tensor) -> Tensor:
        return evaluated(twin.module, s, z.unsqueeze(0), x.unsqueeze(0))[0]

    try:
        twin.put({name: tensor(block.field, name)[0] for name in block.expansion.bases})
        found: Tensor = vmap(one, randomness="different")(s, z, x)
        return found
    finally:
        block.twins.give_back(twin)


def _checked(field: nn.Module, s: Tensor, z: Tensor, x: Any) -> Tensor:
    """The value of a flow's field; an error names the shapes that it was given."""
    try:
        return evaluated(field, s, z, x)
    except (RuntimeError, TypeError, ValueError, IndexError) as error:
        if isinstance(error, ContinuaError | torch.OutOfMemoryError):
            raise
        seen = f" with a context of {list(x.shape)}" if isinstance(field, Field) else ""
        raise ShapeError(
            f"the field {type(field).__name__} of the flow fails on samples of shape "
            f"{list(z.shape)}{seen}: {error}; make its first layer as wide as what it is given"
        ) from error


def _tracked(z: Tensor) -> Tensor:
    """The tensor itself if it requires a gradient, otherwise a leaf with its values that does."""
    return z if z.requires_grad else z.detach().requires_grad_()


def _trace(f: Tensor, z: Tensor, wanted: bool) -> Tensor:
    """The trace of df/dz for each sample."""
    total = torch.zeros_like(f[:, 0])
    for i in range(f.shape[1]):
        (by,) = torch.autograd.grad(
            f[:, i].sum(), z, create_graph=wanted, retain_graph=True, allow_unused=True
        )
        if by is not None:
            total = total + by[:, i]
    return total
