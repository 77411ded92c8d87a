"""Training of small models, in memory."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

import continua as ct
from continua.train import Progress, Watch, silent


def train_steps(
    model: nn.Module,
    loss: Callable[[int], Tensor],
    steps: int,
    *,
    name: str,
    rate: float = 1e-2,
    weight_decay: float = 0.0,
    anneal: bool = False,
    watch: Watch = silent,
) -> list[float]:
    """Minimise a loss by Adam; its values.

    Args:
        model: whose parameters to train.
        loss: of the model at a step.
        steps: how many.
        name: to show.
        rate: the learning rate.
        weight_decay: decoupled.
        anneal: whether the rate falls in half a cosine.
        watch: called after every step.
    """
    kind = torch.optim.AdamW if weight_decay else torch.optim.Adam
    optimizer = kind(model.parameters(), lr=rate, weight_decay=weight_decay)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps) if anneal else None
    values = []
    for step in range(steps):
        value = loss(step)
        if not bool(torch.isfinite(value.detach())):
            raise ct.SolveError(f"the loss of {name} is {float(value.detach()):g} at step {step}")
        optimizer.zero_grad()
        torch.autograd.backward(value)
        optimizer.step()
        if schedule is not None:
            schedule.step()
        values.append(float(value.detach()))
        watch(Progress(name, step + 1, steps, f"loss {values[-1]:.3g}"))
    return values


def count(model: nn.Module) -> int:
    """The parameters of a model."""
    return sum(p.numel() for p in model.parameters())
