"""torchdiffeq: `odeint` and `odeint_adjoint`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import version
from typing import Any

import torch
from torch import Tensor, nn
from torchdiffeq import odeint, odeint_adjoint

from .protocol import Case, Problem, Side, Unsupported, serve
from .torch_fields import Buckets, Field, case, field_of, normal_log_prob, tensors

Solve = Callable[[nn.Module, Any], Any]


class Stepped(nn.Module):
    """A field of buckets that takes one bucket in all stages of a step, also at its right end."""

    def __init__(self, field: Buckets):
        super().__init__()
        self.field = field
        self.bucket = 0

    def callback_step(self, s: Tensor, z: Tensor, h: Tensor) -> None:
        """The solver calls it before each step."""
        self.bucket = self.field.bucket(s)

    def forward(self, s: Tensor, z: Tensor) -> Tensor:
        """The derivative of the state."""
        return self.field.inside(self.bucket, z)


class Density(nn.Module):
    """The derivatives of a state and of its log-density; without `noise` the trace is exact."""

    def __init__(self, field: Field, noise: Tensor | None):
        super().__init__()
        self.field = field
        self.noise = noise

    def forward(self, s: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """The field, and its divergence."""
        z = state[0].requires_grad_()
        f = self.field(s, z)
        if self.noise is not None:
            (product,) = torch.autograd.grad(f, z, self.noise, create_graph=True)
            return f, (product * self.noise).sum(1)
        rows = [
            torch.autograd.grad(f[:, i].sum(), z, create_graph=True)[0][:, i]
            for i in range(z.shape[1])
        ]
        return f, torch.stack(rows).sum(0)


def seminorm(parts: tuple[Tensor, ...]) -> Tensor:
    """Of the state and its adjoint, and not of the gradients of depth and weights.

    Its own "seminorm" keeps the gradient of depth, a sum over the batch: on Fourier weights the
    way back then takes 482 evaluations and not 128. For fields without depth the two are the same.
    """
    _, z, adjoint, *_ = parts
    return torch.maximum(z.square().mean(), adjoint.square().mean()).sqrt()


def solver_of(problem: Problem) -> tuple[Solve, str]:
    """What solves a field from a state at depth 0 to depth 1, and what is to be noted of it."""
    settings, notes = problem.settings, []
    if settings["gradient"] == "checkpoint":
        raise Unsupported("it has backpropagation and the adjoint, and no checkpoints")
    adjoint = settings["gradient"] == "adjoint"
    given: dict[str, Any] = {"method": settings["solver"]}
    if "steps" in settings:
        # Its step_size rounds the number of steps up, which may give one more than asked for.
        points = settings["steps"] + 1
        given["options"] = {
            "grid_constructor": lambda f, z, s: torch.linspace(float(s[0]), float(s[-1]), points)
        }
    else:
        given["rtol"] = given["atol"] = settings["tolerance"]
        if adjoint:
            given["adjoint_options"] = {"norm": seminorm}
            notes.append("adjoint with the seminorm of state and adjoint")
    if settings["solver"] == "rk4":
        notes.append("its rk4 is the 3/8 rule")
    span, method = torch.tensor([0.0, 1.0]), odeint_adjoint if adjoint else odeint

    def solve(field: nn.Module, start: Any) -> Any:
        return method(field, start, span, **given)

    return solve, "; ".join(notes)


def block(problem: Problem) -> Case:
    """A field on the whole batch."""
    solve, note = solver_of(problem)
    field, x = field_of(problem), tensors(problem)["x"]
    return named(problem, case(field, lambda: solve(field, x)[-1], note=note))


def stateful(problem: Problem) -> Case:
    """The same where the bucket is that of the step, and not of the depth."""
    solve, note = solver_of(problem)
    field, x = field_of(problem), tensors(problem)["x"]
    assert isinstance(field, Buckets)
    stepped = Stepped(field)
    note = f"{note}; callback_step tells the bucket"
    return named(problem, case(field, lambda: solve(stepped, x)[-1], note=note))


def named(problem: Problem, made: Case) -> Case:
    """With the method that its rk4 is."""
    return replace(made, solver="rk38") if problem.settings["solver"] == "rk4" else made


def flow(problem: Problem) -> Case:
    """The log-density of data under a flow, whose trace is written by hand."""
    solve, _ = solver_of(problem)
    field, given = field_of(problem), tensors(problem)
    x = given["x"]
    noise = given["noise"] if problem.settings["trace"] == "hutchinson" else None
    density = Density(field, noise)

    def log_prob() -> Tensor:
        states, changes = solve(density, (x, torch.zeros(len(x))))
        change: Tensor = changes[-1]
        return normal_log_prob(states[-1]) + change

    return case(field, log_prob, lambda p: -p.mean(), "trace by hand")


def side() -> Side:
    """All rows with one span for the batch."""
    blocks = (
        "fixed-small", "fixed-large", "adaptive-tiny", "adaptive-medium", "galerkin",
        "conv-adaptive", "transformer",
    )  # fmt: skip
    return Side(
        "torchdiffeq",
        version("torchdiffeq"),
        {**dict.fromkeys(blocks, block), "conv-stateful": stateful, "cnf": flow},
        torch.set_num_threads,
        {"per-sample": "one span and one step size for the batch"},
    )


if __name__ == "__main__":
    serve(side())
