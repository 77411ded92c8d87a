"""What the sides are compared with: each problem in float64, on a fine grid, without a library."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from ._sides.protocol import Array, Outcome, Problem
from ._sides.torch_fields import Field, field_of, loss, normal_log_prob, outcome, tensors
from ._sides.with_loop import solve

# Steps of RK4 in place of adaptive ones; a smooth field on [0, 1] needs no more. The field of
# images is large and its tolerance coarse.
STEPS = 64
IMAGE_STEPS = 10


@dataclass(frozen=True)
class Errors:
    """How far an outcome is from the reference, relative to it in the 2-norm."""

    state: float
    gradient: float


def reference(problem: Problem, solver: str = "") -> Outcome:
    """The state and the gradients of a problem.

    They are those of the problem's own grid where it has one and is differentiated through it; an
    adjoint equation aims at the gradient of the true solution.

    Args:
        problem: which.
        solver: on its grid, if another than the problem names.
    """
    field, given = field_of(problem, torch.float64), tensors(problem, torch.float64)
    settings, x = problem.settings, given["x"]
    if problem.row.startswith("cnf"):
        state = _log_prob(field, x, given["noise"], settings["trace"])
        total = -state.mean()
    elif "ends" in given:
        state = _rk4(lambda z: given["ends"].unsqueeze(1) * field(0.0, z), x, 2 * STEPS)
        total = loss(state)
    elif "steps" in settings and settings["gradient"] != "adjoint":
        state = solve(field, x, solver or settings["solver"], settings["steps"])
        total = loss(state)
    elif problem.kind == "conv-softplus":
        state = _rk4(lambda z: field(0.0, z), x, IMAGE_STEPS)
        total = loss(state)
    else:
        state = solve(field, x, "rk4", 4 * STEPS if problem.kind == "galerkin" else STEPS)
        total = loss(state)
    return outcome(state, field.names, torch.autograd.grad(total, field.weights()), None)


def errors(found: Outcome, true: Outcome) -> Errors:
    """Of an outcome; all gradients together."""
    return Errors(
        _relative([found.state], [true.state]),
        _relative([found.gradients[name] for name in true.gradients], [*true.gradients.values()]),
    )


def _relative(found: list[Array], true: list[Array]) -> float:
    a = np.concatenate([np.asarray(value, np.float64).ravel() for value in found])
    b = np.concatenate([np.asarray(value, np.float64).ravel() for value in true])
    return float(np.linalg.norm(a - b) / np.linalg.norm(b))


def _rk4(f: Callable[[Tensor], Tensor], z: Tensor, steps: int) -> Tensor:
    """The classical method for a field without depth; a step is forgotten and done again."""

    def step(z: Tensor) -> Tensor:
        k1 = f(z)
        k2 = f(z + h / 2 * k1)
        k3 = f(z + h / 2 * k2)
        k4 = f(z + h * k3)
        return z + h / 6 * (k1 + 2 * (k2 + k3) + k4)

    h = 1 / steps
    for _ in range(steps):
        z = checkpoint(step, z, use_reentrant=False)
    return z


def _log_prob(field: Field, x: Tensor, noise: Tensor, trace: str) -> Tensor:
    def divergence(state: Tensor) -> Tensor:
        z = state[:, :-1].requires_grad_()
        f = field(0.0, z)
        if trace == "hutchinson":
            (product,) = torch.autograd.grad(f, z, noise, create_graph=True)
            change = (product * noise).sum(1)
        else:
            rows = [
                torch.autograd.grad(f[:, i].sum(), z, create_graph=True)[0][:, i]
                for i in range(z.shape[1])
            ]
            change = torch.stack(rows).sum(0)
        return torch.cat([f, change.unsqueeze(1)], 1)

    start = torch.cat([x, torch.zeros_like(x[:, :1])], 1)
    end = _rk4(divergence, start, STEPS)
    return normal_log_prob(end[:, :-1]) + end[:, -1]
