"""The gradient of a loss with respect to functions of depth."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from continua._errors import ArgumentError
from continua.block import ODEBlock
from continua.field import copied


@dataclass(frozen=True, repr=False)
class FunctionalGradient:
    r"""The gradient of a loss with respect to the functions θ(s).

    Attributes:
        s: the depths, `[S]`.
        gradients: for each parameter of the field δℓ/δθ(s), `[S, ...]`.
    """

    s: Tensor
    gradients: dict[str, Tensor]

    def __repr__(self) -> str:
        shapes = (f"{name} {list(g.shape[1:])}" for name, g in self.gradients.items())
        return f"FunctionalGradient({len(self.s)} depths: {', '.join(shapes)})"

    @property
    def norm(self) -> Tensor:
        """The norm over all weights at each depth, `[S]`."""
        if not self.gradients:
            return torch.zeros_like(self.s)
        squares = [g.flatten(1).square().sum(1) for g in self.gradients.values()]
        return torch.stack(squares).sum(0).sqrt()


def functional_gradient(
    block: ODEBlock,
    x: Tensor,
    loss: Callable[[Tensor], Tensor],
    s: Sequence[float] | Tensor,
    running_cost: Callable[..., Tensor] | None = None,
) -> FunctionalGradient:
    r"""The functional gradient of a loss on a grid of depths.

    .. math:: \frac{\delta \ell}{\delta \theta(s)} = a(s)^\top
              \frac{\partial f_{\theta(s)}}{\partial \theta(s)}

    with the adjoint a(s), the gradient of the loss with respect to the state at depth s. It is the
    same in every basis: the gradient of a coefficient is its integral against the basis function.
    The solve is split at the given depths, so a fixed grid takes all its steps between each two.

    Args:
        block: the block whose weights are functions of depth.
        x: its input.
        loss: from the state at the end of the span to a number.
        s: the depths, along the span.
        running_cost: l(s, z), whose integral is added to the loss, summed over the samples.

    Theorem 1 of Dissecting Neural ODEs (Massaroli et al. 2020).

    Example:
        >>> import continua as ct
        >>> block = ct.ODEBlock(torch.nn.Linear(2, 2), ct.Fourier(1), ct.RK4(steps=4))
        >>> found = functional_gradient(block, torch.ones(3, 2), lambda z: z.sum(), [0.0, 0.5, 1.0])
        >>> found.gradients["weight"].shape, found.norm.shape
        (torch.Size([3, 2, 2]), torch.Size([3]))
    """
    depths = [float(v) for v in s]
    start, end = block.span
    if not depths or depths != sorted(depths, reverse=end < start):
        raise ArgumentError("functional_gradient needs depths that run along the block's span")
    if not min(block.span) <= min(depths) <= max(depths) <= max(block.span):
        raise ArgumentError(
            f"the depths {depths[0]:g} to {depths[-1]:g} leave the span {block.span}"
        )
    block = copied(block)  # a solve in training mode updates statistics
    states: dict[float, Tensor] = {}
    cost = x.new_zeros(())
    with torch.enable_grad():
        z, previous = x.detach().requires_grad_(), start
        for depth in dict.fromkeys([*depths, end]):
            if depth != previous:
                span = (previous, depth)
                solution = block.solve(z, span=span, running_cost=running_cost, control=x)
                if solution.cost is not None:
                    cost = cost + solution.cost.sum()
                z, previous = solution.final, depth
            states[depth] = z
        value = loss(z) + cost
        if value.numel() != 1:
            raise ArgumentError(f"loss returns one number, not a tensor of {list(value.shape)}")
        adjoints = torch.autograd.grad(value, list(states.values()), allow_unused=True)
    vjps: dict[float, dict[str, Tensor]] = {}
    for (depth, z), a in zip(states.items(), adjoints, strict=True):
        if depth in depths:
            a = torch.zeros_like(z) if a is None else a
            vjps[depth] = block.weight_vjp(depth, z.detach(), a, control=x)
    s = torch.tensor(depths, dtype=torch.float64, device="cpu")
    gradients = {name: torch.stack([vjps[d][name] for d in depths]) for name in vjps[depths[0]]}
    return FunctionalGradient(s, gradients)
