"""Values that are not finite, and tensors that have no values to look at."""

from __future__ import annotations

import cmath
import math
from dataclasses import replace

import torch
from torch import Tensor

from continua.solve import Failure, Status, Trajectory


def tracing() -> bool:
    """Whether operations are recorded, or carried out without values."""
    return torch._C._len_torch_dispatch_stack() > 0


def has_values(x: Tensor) -> bool:
    """Whether the tensor can be looked at: not while tracing, nor under vmap."""
    if torch.compiler.is_compiling() or x.is_meta or tracing():
        return False
    return not torch._C._functorch.is_functorch_wrapped_tensor(x)


def finite(x: Tensor) -> bool:
    """Whether all values are finite; their sum tells at once, if it is finite itself."""
    return cmath.isfinite(x.sum().item()) or bool(torch.isfinite(x.detach()).all())


def non_finite(x: Tensor) -> str:
    """Where a tensor is not finite, in words."""
    bad = ~torch.isfinite(x.detach())
    kind = "NaN" if x.detach().isnan().any() else "infinite"
    sample = f", first in sample {int(bad.nonzero()[0, 0])}" if x.dim() else ""
    return f"{int(bad.sum())} {kind} of {x.numel()} values{sample}; clean the data before"


def with_finite_end(trajectory: Trajectory, end: float) -> Trajectory:
    """The trajectory, marked as failed if its end is not finite, as a fixed grid may leave it."""
    if trajectory.status is not Status.SUCCESS or not has_values(trajectory.final[0]):
        return trajectory
    bad = next((leaf for leaf in trajectory.final if not finite(leaf)), None)
    if bad is None:
        return trajectory
    sample = int((~bad.detach().isfinite()).nonzero()[0, 0]) if bad.dim() else None
    sizes = trajectory.stats.step_sizes
    failure = Failure(end, sample, math.nan, sizes[-1] if sizes else math.nan)
    return replace(trajectory, status=Status.NON_FINITE, failure=failure)
