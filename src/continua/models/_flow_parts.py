"""What a flow does besides solving: its prior on other devices, and checks."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.distributions import Distribution, Transform

from continua._errors import ShapeError, SolveError


def mapped(value: Any, fn: Callable[[Tensor], Tensor]) -> Any:
    """A distribution with a function applied to its tensors, as a module does to its buffers."""
    if isinstance(value, Tensor):
        return fn(value)
    if isinstance(value, list | tuple):
        return type(value)(mapped(part, fn) for part in value)
    if isinstance(value, Distribution | Transform):
        made = copy.copy(value)
        vars(made).update({name: mapped(part, fn) for name, part in vars(value).items()})
        return made
    return value


def check_context(context: Any) -> None:
    """Refuse what is not a batch of contexts."""
    if not isinstance(context, Tensor) or context.dim() == 0:
        got = "a single number" if isinstance(context, Tensor) else type(context).__name__
        raise ShapeError(f"a context is a tensor [B, ...], one row for each sample, not {got}")


def check_found(found: Tensor, x: Tensor) -> None:
    """Refuse samples that Newton's method did not reach."""
    off = ((found - x).abs() / (1 + x.abs())).amax(1)
    bad = ~(off < 1e-3)
    if bool(bad.any()):
        first = int(bad.nonzero()[0, 0])
        raise SolveError(
            f"the flow reaches sample {first} only to a relative distance of "
            f"{float(off[first]):.3g} ({int(bad.sum())} of {len(x)} samples): its map is not "
            "invertible there, or too steep for Newton's method; train with smaller steps, or "
            "use context='given'"
        )
