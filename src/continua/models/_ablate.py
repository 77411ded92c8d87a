"""What the flow of a model contributes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from continua._errors import ArgumentError, ShapeError
from continua.block import ODEBlock
from continua.field import copied, evaluated
from continua.solve import sides

from ._depth import AdaptiveDepth
from ._jumps import Jumps

Measure = Callable[[Tensor, Tensor], float]


@dataclass(frozen=True)
class Ablation:
    """How well a model does with its flows and without.

    Attributes:
        measure: what was measured.
        whole: the measure of the whole model.
        without: of the model without one flow each, by the name of the flow.
        movement: how far each flow moves its states, relative to their size.
    """

    measure: str
    whole: float
    without: dict[str, float]
    movement: dict[str, float]

    def __str__(self) -> str:
        lines = [f"{self.measure}: {self.whole:.4g} with everything"]
        for name, value in self.without.items():
            lines.append(
                f"  {value:.4g} without the flow {name or '(the model)'}, which moves its states "
                f"by {self.movement[name]:.2g} of their size"
            )
        return "\n".join(lines)


@torch.no_grad()
def ablate(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    measure: Measure | None = None,
    name: str | None = None,
) -> Ablation:
    """How much the flows of a model contribute beyond the networks before and after them.

    Each flow is replaced by the identity in turn. If the measure stays what it was, the flow is
    superfluous: input and output networks do the work (Dissecting Neural ODEs, section 6).

    Args:
        model: that contains ODE blocks; it is not changed, and measured in evaluation mode.
        x: inputs.
        y: targets.
        measure: from outputs and targets to a number; by default the accuracy for whole-number
            targets (a single output counts as class 1 above 0), else the mean squared error.
        name: of the measure.

    Example:
        >>> import continua as ct
        >>> flow = ct.ODEBlock(nn.Linear(2, 2), solver=ct.RK4(steps=2))
        >>> model = nn.Sequential(flow, nn.Linear(2, 3))
        >>> report = ablate(model, torch.randn(9, 2), torch.zeros(9).long())
        >>> list(report.without)
        ['0']
    """
    flows = _flows(model)
    if not flows:
        raise ArgumentError(f"{type(model).__name__} contains no ODE block: nothing to ablate")
    if len(x) != len(y):
        raise ShapeError(f"{len(x)} inputs need {len(x)} targets, not {len(y)}")
    classes = not y.is_floating_point()
    score = measure or (_accuracy if classes else _mean_square)
    named = name or ("measure" if measure else "accuracy" if classes else "mean squared error")
    twin = copied(model).eval()
    whole = score(twin(x), y)
    without, movement = {}, {}
    for flow in flows:
        moved: list[float] = []
        other = copied(twin)
        skip = _Skip(moved, other.get_submodule(flow))
        if flow:
            parent, _, key = flow.rpartition(".")
            setattr(other.get_submodule(parent), key, skip)
        else:
            other = skip
        without[flow] = score(other(x), y)
        movement[flow] = sum(moved) / max(len(moved), 1)
    return Ablation(named, whole, without, movement)


def _flows(model: nn.Module) -> list[str]:
    """The outermost flows."""
    found: list[str] = []
    for name, module in model.named_modules():
        inside = any(name.startswith(f"{outer}.") or outer == "" for outer in found)
        if isinstance(module, ODEBlock | AdaptiveDepth | Jumps) and not inside:
            found.append(name)
    return found


class _Skip(nn.Module):
    """The identity in place of a flow, which is run aside to see how far it moves."""

    def __init__(self, moved: list[float], flow: nn.Module):
        super().__init__()
        self.moved, self.flow = moved, flow

    def forward(self, x: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(x, Tensor):
            out = self.flow(x, *args, **kwargs)
            self.moved.append(float((out - x).norm() / x.norm().clamp(min=1e-12)))
        return x


def _accuracy(out: Tensor, y: Tensor) -> float:
    single = out.shape[-1] == 1 and out.dim() == y.dim() + 1
    found = (out.squeeze(-1) > 0).long() if single else out.argmax(-1)
    return float((found == y).double().mean())


def _mean_square(out: Tensor, y: Tensor) -> float:
    return float((out.reshape(y.shape) - y).square().mean())


@torch.no_grad()
def local_exponents(block: ODEBlock, x: Tensor, s: Sequence[float]) -> Tensor:
    r"""The largest rate at which neighbouring states part, along depth, `[S, B]`.

    .. math:: \lambda(s) = \lambda_{\max}\Big(\tfrac12 (J + J^\top)\Big), \qquad
              J = \frac{\partial f}{\partial z}(s, z(s))

    The maximal local Lyapunov exponent: above zero, some perturbation of the state grows there.

    Args:
        block: on vectors, `[B, D]`.
        x: inputs.
        s: depths along the span.

    Example:
        >>> import continua as ct
        >>> class Grow(nn.Module):
        ...     def forward(self, z):
        ...         return 2 * z
        >>> block = ct.ODEBlock(Grow(), solver=ct.RK4(steps=4))
        >>> local_exponents(block, torch.ones(1, 3), [0.0, 1.0])
        tensor([[2.],
                [2.]])
    """
    if not isinstance(x, Tensor) or x.dim() != 2:
        raise ShapeError("local exponents are for states of shape [B, D]")
    states = block.solve(x, save_at=list(s)).z  # [S, B, D]
    out = []
    for depth, z in zip(s, states, strict=True):
        module = block.at(float(depth), sides(*block.span)[int(depth == block.span[1])])
        at = torch.tensor(float(depth), dtype=x.dtype, device=x.device)
        jacobian = _jacobian(partial(evaluated, module, at, x=x), z)
        out.append(torch.linalg.eigvalsh((jacobian + jacobian.mT) / 2)[:, -1])
    return torch.stack(out)


def _jacobian(f: Callable[[Tensor], Tensor], z: Tensor) -> Tensor:
    """df/dz for each sample, `[B, D, D]`, for a field that treats samples apart."""
    with torch.enable_grad():
        z = z.detach().requires_grad_()
        out = f(z)
        rows = [
            torch.autograd.grad(out[:, i].sum(), z, retain_graph=True, allow_unused=True)[0]
            for i in range(z.shape[1])
        ]
    return torch.stack([torch.zeros_like(z) if row is None else row for row in rows], 1)
