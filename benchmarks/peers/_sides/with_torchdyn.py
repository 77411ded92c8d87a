"""torchdyn: `NeuralODE`, with its Galerkin layers and its normalizing flow."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from importlib.metadata import version
from typing import Any

import torch
from torch import Tensor, nn
from torchdyn.core import NeuralODE
from torchdyn.models import CNF, autograd_trace, hutch_trace
from torchdyn.nn import Augmenter, DepthCat, Fourier, GalLinear
from torchdyn.numerics import RungeKutta4

from .protocol import Case, Outcome, Problem, Side, Unsupported, serve
from .torch_fields import Buckets, Field, case, field_of, loss, normal_log_prob, outcome, tensors


class VectorField(nn.Module):
    """A field with the arguments that torchdyn looks for by their names."""

    def __init__(self, field: Field):
        super().__init__()
        self.field = field

    def forward(self, t: Tensor, x: Tensor, args: Mapping[str, Any] | None = None) -> Tensor:
        """The derivative of the state."""
        found: Tensor = self.field(t, x)
        return found


class Bucket(nn.Module):
    """A field in one of its buckets."""

    def __init__(self, field: Buckets, bucket: int):
        super().__init__()
        self.field = field
        self.bucket = bucket

    def forward(self, t: Tensor, x: Tensor, args: Mapping[str, Any] | None = None) -> Tensor:
        """The derivative of the state."""
        return self.field.inside(self.bucket, x)


class Depthless(nn.Module):
    """A field that does not depend on depth, called with the state alone."""

    def __init__(self, field: Field):
        super().__init__()
        self.field = field

    def forward(self, x: Tensor) -> Tensor:
        """The derivative of the state."""
        found: Tensor = self.field(0.0, x)
        return found


class Given:
    """A distribution that always draws the same noise."""

    def __init__(self, noise: Tensor):
        self.noise = noise

    def sample(self, shape: tuple[int, ...]) -> Tensor:
        """The noise, whatever the shape."""
        return self.noise


def model_of(problem: Problem, field: nn.Module, solver: Any = None) -> Any:
    """The neural ODE of a problem; `solver` in place of that of the settings."""
    settings = problem.settings
    sensitivity = {"backprop": "autograd", "adjoint": "adjoint"}.get(settings["gradient"])
    if sensitivity is None:
        raise Unsupported("it has backpropagation and adjoints, and no checkpoints")
    # Fixed grids have no tolerance, and warn of any but this.
    tolerance = settings.get("tolerance", 1e-3)
    return NeuralODE(
        field,
        solver=solver or settings["solver"],
        sensitivity=sensitivity,
        atol=tolerance,
        rtol=tolerance,
        atol_adjoint=tolerance,
        rtol_adjoint=tolerance,
        return_t_eval=False,
    )


def last_of(problem: Problem, model: Any) -> Callable[[Tensor], Tensor]:
    """What solves from depth 0 to depth 1."""
    settings = problem.settings
    span = torch.linspace(0, 1, settings.get("steps", 1) + 1)
    # Backpropagation on a grid need not keep the states between. Its adjoint does not pass the
    # choice on, and adaptive methods keep no others.
    few = "steps" in settings and settings["gradient"] == "backprop"
    given = {"save_at": span[-1:]} if few else {}

    def solve(x: Tensor) -> Tensor:
        found: Tensor = model(x, span, **given)[-1]
        return found

    return solve


def adjoint_note(problem: Problem) -> str:
    """Its adjoint on adaptive steps has one norm, which leaves the gradients of weights out."""
    settings = problem.settings
    adaptive = settings["solver"] == "dopri5" and settings["gradient"] == "adjoint"
    return "adjoint with the seminorm" if adaptive else ""


def block(problem: Problem) -> Case:
    """A field on the whole batch."""
    field, x = field_of(problem), tensors(problem)["x"]
    solve = last_of(problem, model_of(problem, VectorField(field)))
    return case(field, lambda: solve(x), note=adjoint_note(problem))


def stateful(problem: Problem) -> Case:
    """The same where the bucket is that of the step: a solve of one step for each."""
    field, x = field_of(problem), tensors(problem)["x"]
    assert isinstance(field, Buckets)
    steps = problem.settings["steps"]
    edges = torch.linspace(0, 1, steps + 1)
    models = [
        model_of(problem, Bucket(field, field.bucket((i + 0.5) / steps))) for i in range(steps)
    ]

    def forward() -> Tensor:
        z = x
        for i, model in enumerate(models):
            z = model(z, edges[i : i + 2], save_at=edges[i + 1 : i + 2])[-1]
        return z

    return case(field, forward, note="each bucket is a solve of its own")


def galerkin(problem: Problem) -> Case:
    """Its Galerkin layers, whose series are those of the problem once dilated."""
    settings, names = problem.settings, list(problem.weights)
    layers = [
        galerkin_layer(problem, names[i], names[i + 1], settings["harmonics"])
        for i in range(0, len(names), 2)
    ]
    net = nn.Sequential()
    for i, layer in enumerate(layers):
        net.extend([DepthCat(1), layer, nn.Tanh()] if i + 1 < len(layers) else [DepthCat(1), layer])
    notes, solver = ["GalLinear"], None
    if settings["solver"] == "rk4":
        # Its rk4 reads the depths of the second to fourth stage one place too early, so that they
        # are 0, 1/2, 1/2 of a step and not 1/2, 1/2, 1.
        solver = RungeKutta4()
        depths, *rest = solver.tableau
        solver.tableau = (depths[1:], *rest)
        notes.append("rk4 with the depths of its stages corrected")
    notes += filter(None, [adjoint_note(problem)])
    model, x = model_of(problem, net, solver), tensors(problem)["x"]
    solve, coefficients = last_of(problem, model), [layer.coeffs for layer in layers]

    def results() -> Outcome:
        model.vf.nfe = 0
        z = solve(x)
        found: list[Tensor] = []
        for gradient, name in zip(
            torch.autograd.grad(loss(z), coefficients), names[::2], strict=True
        ):
            # The sine of frequency 0 is in its series and not in the problem's.
            rows = gradient.permute(1, 2, 0).flatten(0, 1)
            rows = torch.cat([rows[:1], rows[2:]])
            shape = problem.weights[name].shape
            split = math.prod(shape[1:])
            found += [rows[:, :split].reshape(shape), rows[:, split:]]
        return outcome(z, names, found, int(model.vf.nfe))

    return Case(
        lambda: torch.autograd.grad(loss(solve(x)), coefficients), results, "; ".join(notes)
    )


def galerkin_layer(problem: Problem, weight: str, bias: str, harmonics: int) -> Any:
    """The layer of two stacks of coefficients."""
    stacks = [torch.tensor(problem.weights[name]) for name in (weight, bias)]
    outer, inner = stacks[0].shape[1:]
    count = harmonics + 1
    layer = GalLinear(inner, outer, expfunc=Fourier(count), dilation=False, shift=False)
    # Its frequencies are 0 to `count` in `count` equal places.
    layer.dilation = torch.tensor([2 * math.pi * harmonics / count])
    rows = torch.cat([stack.flatten(1) for stack in stacks], 1)
    rows = torch.cat([rows[:1], torch.zeros_like(rows[:1]), rows[1:]])
    with torch.no_grad():
        layer.coeffs.copy_(rows.view(count, 2, -1).permute(2, 0, 1))
    return layer


def flow(problem: Problem) -> Case:
    """The log-density of data under its normalizing flow."""
    field, given = field_of(problem), tensors(problem)
    x = given["x"]
    if problem.settings["trace"] == "hutchinson":
        flow = CNF(Depthless(field), hutch_trace, Given(given["noise"]))
    else:
        flow = CNF(Depthless(field), autograd_trace)
    # The first column starts at zero and loses the divergence.
    augment, solve = Augmenter(1, 1), last_of(problem, model_of(problem, flow))

    def log_prob() -> Tensor:
        z = solve(augment(x))
        return normal_log_prob(z[:, 1:]) - z[:, 0]

    return case(field, log_prob, lambda p: -p.mean(), "CNF")


def side() -> Side:
    """All rows with one span for the batch."""
    blocks = (
        "fixed-small", "fixed-large", "adaptive-tiny", "adaptive-medium", "conv-adaptive",
        "transformer",
    )  # fmt: skip
    build = {
        **dict.fromkeys(blocks, block),
        "galerkin": galerkin,
        "conv-stateful": stateful,
        "cnf": flow,
    }
    missing = {"per-sample": "one span and one step size for the batch"}
    return Side("torchdyn", version("torchdyn"), build, torch.set_num_threads, missing)


if __name__ == "__main__":
    serve(side())
