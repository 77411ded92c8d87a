"""The problems as one solves them with zuko: `zuko.utils.odeint`, and its flow where it fits."""

from __future__ import annotations

import torch
import zuko
from torch import Tensor
from zuko.distributions import DiagNormal, NormalizingFlow
from zuko.transforms import FreeFormJacobianTransform

from .protocol import Case, Problem, Side, Unsupported, serve
from .torch_fields import case, field_of, normal_log_prob, tensors

FIXED = "odeint has no fixed steps"
GRADIENT = "adaptive checkpoint adjoint, its only gradient: the adjoint equation on kept steps"


def plain(problem: Problem) -> Case:
    """The state at depth 1 and its loss."""
    settings = problem.settings
    if "tolerance" not in settings:
        raise Unsupported(FIXED)
    if "/" in problem.row and settings["gradient"] == "backprop":
        # Rows of their own compare gradients, and this one has its place there.
        raise Unsupported("no backpropagation through odeint")
    field, x, tolerance = field_of(problem), tensors(problem)["x"], settings["tolerance"]

    def end() -> Tensor:
        z: Tensor = zuko.utils.odeint(field, x, 0.0, 1.0, field.weights(), tolerance, tolerance)
        return z

    return case(field, end, note=GRADIENT)


def flow(problem: Problem) -> Case:
    """The log-density: by zuko's flow where the trace is exact."""
    settings = problem.settings
    field, given, tolerance = field_of(problem), tensors(problem), settings["tolerance"]
    x, noise = given["x"], given["noise"]
    zeros = torch.zeros_like(x[:, 0])

    def own() -> Tensor:
        transform = FreeFormJacobianTransform(
            field, 0.0, 1.0, field.weights(), tolerance, tolerance, exact=True
        )
        base = DiagNormal(torch.zeros(x.shape[1]), torch.ones(x.shape[1]))
        log_prob: Tensor = NormalizingFlow(transform, base).log_prob(x)
        return log_prob

    def augmented(s: Tensor, z: Tensor, change: Tensor) -> tuple[Tensor, Tensor]:
        create = torch.is_grad_enabled()
        with torch.enable_grad():
            z = z if create else z.detach().requires_grad_()
            f = field(s, z)
            (along,) = torch.autograd.grad(f, z, noise, create_graph=create)
        return f, (along * noise).sum(1)

    def by_hand() -> Tensor:
        z, change = zuko.utils.odeint(
            augmented, (x, zeros), 0.0, 1.0, field.weights(), tolerance, tolerance
        )
        log_prob: Tensor = normal_log_prob(z) + change
        return log_prob

    exact = settings["trace"] == "exact"
    note = (
        "NormalizingFlow; its divergence may err a hundredfold of atol"
        if exact
        else "odeint by hand: FreeFormJacobianTransform draws a noise of its own"
    )
    return case(field, own if exact else by_hand, lambda p: -p.mean(), f"{note}; {GRADIENT}")


def side() -> Side:
    """Of zuko."""
    rows = ("adaptive-tiny", "adaptive-medium", "galerkin", "conv-adaptive")
    missing = dict.fromkeys(("fixed-small", "fixed-large", "conv-stateful", "transformer"), FIXED)
    return Side(
        "zuko",
        zuko.__version__,
        dict.fromkeys(rows, plain) | {"cnf": flow},
        torch.set_num_threads,
        missing | {"per-sample": "one span per batch"},
    )


if __name__ == "__main__":
    serve(side())
