"""The problems as one solves them with torchode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torchode
from torch import Tensor, nn
from torchode.interpolation import LinearInterpolation
from torchode.single_step_methods.runge_kutta import ButcherTableau, ExplicitRungeKutta

from .protocol import Case, Problem, Side, Unsupported, serve
from .torch_fields import Buckets, Field, case, field_of, normal_log_prob, tensors


class RK4(ExplicitRungeKutta):  # type: ignore[misc]
    """The classical method of four stages, which torchode does not have."""

    TABLEAU = ButcherTableau.from_lists(
        c=[0.0, 0.5, 0.5, 1.0],
        a=[[], [0.5], [0.0, 0.5], [0.0, 0.0, 1.0]],
        b=[1 / 6, 1 / 3, 1 / 3, 1 / 6],
        b_err=[0.0, 0.0, 0.0, 0.0],
    )

    def __init__(self, term: Any = None) -> None:
        super().__init__(term, RK4.TABLEAU)

    def convergence_order(self) -> int:
        """Of convergence."""
        return 4

    def build_interpolation(self, data: Any) -> LinearInterpolation:
        """Only the ends of steps are asked for."""
        return LinearInterpolation(data.t0, data.dt, data.y0, data.y1)


class Rows(nn.Module):
    """A function of depth and state as torchode calls it.

    A state is a row for each of its samples. All samples share their depth where the function
    depends on it.
    """

    def __init__(self, function: Callable[[Tensor, Tensor], Tensor], shape: torch.Size) -> None:
        super().__init__()
        # Registers the field when it is a module, so that adjoints find its parameters.
        self.function = function
        self.shape = shape

    def forward(self, t: Tensor, y: Tensor) -> Tensor:
        """The derivative of the rows."""
        return self.function(t[0], y.view(self.shape)).flatten(1)


TABLEAU = "tableau of RK4 by hand"
METHODS = {"rk4": RK4, "euler": torchode.Euler, "dopri5": torchode.Dopri5}


class Solve:
    """A function made ready to be solved by the solver and the gradient of the problem."""

    def __init__(
        self, problem: Problem, function: Callable[[Tensor, Tensor], Tensor], shape: torch.Size
    ) -> None:
        settings = problem.settings
        # Without statistics: the field counts, and the documentation calls it faster.
        self.term = torchode.ODETerm(Rows(function, shape), with_stats=False)
        method = METHODS[settings["solver"]](term=self.term)
        controller: Any = torchode.FixedStepController()
        if "tolerance" in settings:
            tolerance = settings["tolerance"]
            controller = torchode.IntegralController(tolerance, tolerance, term=self.term)
        self.size = _step_size(settings["steps"]) if "steps" in settings else None
        self.joint = settings["gradient"] == "adjoint"
        if self.joint:
            self.adjoint: Any = torchode.JointBacksolveAdjoint(self.term, method, controller)
        else:
            self.adjoint = torchode.AutoDiffAdjoint(
                method, controller, backprop_through_step_size_control=False
            )

    def __call__(self, x: Tensor, start: float | Tensor = 0.0, end: float | Tensor = 1.0) -> Tensor:
        """The state at the end of the span."""
        samples = x.shape[0]
        spans = [torch.as_tensor(s, dtype=x.dtype).expand(samples) for s in (start, end)]
        # A joint solve is of one row that holds them all.
        dt0 = None if self.size is None else x.new_full((1 if self.joint else samples,), self.size)
        problem = torchode.InitialValueProblem(x.flatten(1), *spans)
        states: Tensor = self.adjoint.solve(problem, dt0=dt0).ys
        return states[:, -1].view(x.shape)


def plain(problem: Problem) -> Case:
    """The state at depth 1 and its loss."""
    settings = problem.settings
    if settings["gradient"] == "checkpoint":
        raise Unsupported("it has backpropagation and the adjoint, and no checkpoints")
    field, x = field_of(problem), tensors(problem)["x"]
    if settings["gradient"] == "adjoint":
        solve = Solve(problem, field, x.shape)
        note = "JointBacksolveAdjoint" + ("" if "tolerance" in settings else f"; {TABLEAU}")
        return case(field, lambda: solve(x), note=note)
    if "tolerance" in settings and problem.kind == "galerkin":
        # Samples share weights that depend on depth only if they share their depth.
        joint, row = Solve(problem, _one(field, x.shape), torch.Size((1, x.numel()))), x.view(1, -1)
        note = "the batch as one sample, for its samples share their depth"
        return case(field, lambda: joint(row).view(x.shape), note=note)
    solve = Solve(problem, field, x.shape)
    if "tolerance" in settings:
        note = "own step sizes for each sample"
    else:
        note = TABLEAU if settings["solver"] == "rk4" else ""
    return case(field, lambda: solve(x), note=note)


def _one(field: Field, shape: torch.Size) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda s, z: field(s, z.view(shape)).view(1, -1)


def stateful(problem: Problem) -> Case:
    """One solve for each bucket, of the one step that lies in it."""
    field, x = field_of(problem), tensors(problem)["x"]
    assert isinstance(field, Buckets)
    buckets = problem.settings["steps"]

    def inside(k: int) -> Callable[[Tensor, Tensor], Tensor]:
        return lambda s, z: field.inside(k, z)

    solves = [Solve(problem, inside(k), x.shape) for k in range(buckets)]

    def end() -> Tensor:
        z = x
        for k, solve in enumerate(solves):
            z = solve(z, k / buckets, (k + 1) / buckets)
        return z

    return case(field, end, note=f"{TABLEAU}; one solve per bucket")


def flow(problem: Problem) -> Case:
    """The log-density, by a state of points and their divergence so far."""
    field, given = field_of(problem), tensors(problem)
    x, noise = given["x"], given["noise"]
    exact = problem.settings["trace"] == "exact"

    def augmented(s: Tensor, state: Tensor) -> Tensor:
        z = state[:, :-1]
        if not z.requires_grad:
            z = z.requires_grad_()
        f = field(s, z)
        if exact:
            columns = range(z.shape[1])
            parts = [
                torch.autograd.grad(f[:, i].sum(), z, create_graph=True)[0][:, i] for i in columns
            ]
            change = torch.stack(parts).sum(0)
        else:
            (along,) = torch.autograd.grad(f, z, noise, create_graph=True)
            change = (along * noise).sum(1)
        return torch.cat([f, change[:, None]], 1)

    start = torch.cat([x, torch.zeros_like(x[:, :1])], 1)
    solve = Solve(problem, augmented, start.shape)

    def log_prob() -> Tensor:
        end = solve(start)
        return normal_log_prob(end[:, :-1]) + end[:, -1]

    note = "trace by hand; own step sizes for each sample"
    return case(field, log_prob, lambda p: -p.mean(), note)


def per_sample(problem: Problem) -> Case:
    """Each sample over its own span, as torchode always does."""
    field, given = field_of(problem), tensors(problem)
    solve = Solve(problem, field, given["x"].shape)
    return case(field, lambda: solve(given["x"], 0.0, given["ends"]))


def _step_size(steps: int) -> float:
    """The smallest of which so many reach 1 in float32, so that no step of nothing is left."""
    size, one = np.float32(1 / steps), np.float32(1)
    while np.add.accumulate(np.full(steps, size))[-1] < one:
        size = np.nextafter(size, one)
    return float(size)


def side() -> Side:
    """Of torchode."""
    rows = (
        "fixed-small", "fixed-large", "adaptive-tiny", "adaptive-medium", "galerkin",
        "conv-adaptive", "transformer",
    )  # fmt: skip
    special = {"conv-stateful": stateful, "cnf": flow, "per-sample": per_sample}
    build = dict.fromkeys(rows, plain) | special
    return Side("torchode", torchode.__version__, build, torch.set_num_threads)


if __name__ == "__main__":
    serve(side())
