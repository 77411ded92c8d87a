"""How large a model is."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from ._blocks import blocks


@dataclass(frozen=True)
class Size:
    """How large a model is.

    Attributes:
        parameters: trainable and frozen scalars, the coefficients of all blocks among them.
        state: scalars of the floating-point buffers that are saved with it.
        bytes: of both together.
        evaluations: calls of the fields of all blocks in one forward; None if a solver chooses
            its own steps.
    """

    parameters: int
    state: int
    bytes: int
    evaluations: int | None


def size(model: nn.Module) -> Size:
    """How large a model is."""
    parameters = list(model.parameters())
    names = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    state = {
        t.data_ptr(): t
        for name, t in model.state_dict().items()
        if name not in names and isinstance(t, Tensor) and t.is_floating_point()
    }
    held = [*parameters, *state.values()]
    counts = [b.solver.evaluations(b.span) for b in blocks(model).values()]
    return Size(
        parameters=sum(p.numel() for p in parameters),
        state=sum(t.numel() for t in state.values()),
        bytes=sum(t.numel() * t.element_size() for t in held),
        evaluations=None if None in counts else sum(count or 0 for count in counts),
    )
