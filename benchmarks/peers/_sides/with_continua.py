"""continua: blocks of the same fields that the other sides have."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.distributions import Independent, Normal

import continua as ct
from continua.models import AdaptiveDepth, ContinuousFlow, augmented_classifier

from .protocol import Case, Outcome, Problem, Side, serve
from .torch_fields import loss, outcome, tensors

GRADIENTS = {"backprop": ct.Backprop, "checkpoint": ct.Checkpoint, "adjoint": ct.Adjoint}


class ConvNorm(nn.Sequential):
    """Convolution, batch norm, rectifier."""

    def __init__(self, channels: int):
        super().__init__(
            nn.Conv2d(channels, channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(channels),
            nn.ReLU(),
        )


class Encoder(nn.Module):
    """The increment of a pre-norm transformer encoder."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.norm0 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm1 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, z: Tensor) -> Tensor:
        """Attention, then two layers, both added."""
        batch, tokens, width = z.shape
        y = self.qkv(self.norm0(z)).view(batch, tokens, 3, self.heads, width // self.heads)
        q, k, v = y.permute(2, 0, 3, 1, 4)
        y = nn.functional.scaled_dot_product_attention(q, k, v)
        attended: Tensor = self.out(y.transpose(1, 2).reshape(z.shape))
        increment: Tensor = self.down(nn.functional.gelu(self.up(self.norm1(z + attended))))
        return attended + increment


class MLP(nn.Module):
    """Linear layers with tanh between them, as lean as the field that the other sides have.

    Calling a module for every layer would take as long as the layers themselves.
    """

    def __init__(self, widths: Sequence[int]):
        super().__init__()
        for i, (inner, outer) in enumerate(itertools.pairwise(widths)):
            self.register_parameter(f"W{i}", nn.Parameter(torch.empty(outer, inner)))
            self.register_parameter(f"b{i}", nn.Parameter(torch.empty(outer)))

    def forward(self, z: Tensor) -> Tensor:
        """Layer by layer."""
        weights = list(self._parameters.values())
        for i in range(0, len(weights), 2):
            z = nn.functional.linear(z if i == 0 else torch.tanh(z), weights[i], weights[i + 1])  # type: ignore[arg-type]
        return z


def module_of(problem: Problem) -> nn.Module:
    """The module to wrap."""
    weights = problem.weights
    if problem.kind in ("mlp", "galerkin"):
        matrices = [value for name, value in weights.items() if name.startswith("W")]
        return MLP([matrices[0].shape[-1], *(w.shape[-2] for w in matrices)])
    if problem.kind == "conv-norm":
        return ConvNorm(weights["gamma"].shape[1])
    return Encoder(weights["scale0"].shape[1], problem.settings["heads"])


def basis_of(problem: Problem) -> ct.Basis:
    """The basis of its weights."""
    if problem.kind == "galerkin":
        return ct.Fourier(problem.settings["harmonics"])
    if problem.kind in ("conv-norm", "encoder"):
        return ct.PiecewiseConstant(len(next(iter(problem.weights.values()))))
    return ct.Constant()


def solver_of(problem: Problem, norm: str = "batch") -> ct.Solver:
    """The solver that the settings name."""
    settings = problem.settings
    if settings["solver"] == "dopri5":
        tolerance = settings["tolerance"]
        return ct.Dopri5(tolerance, tolerance, norm=norm)  # type: ignore[arg-type]
    return {"rk4": ct.RK4, "euler": ct.Euler}[settings["solver"]](steps=settings["steps"])


def filled(model: nn.Module, problem: Problem) -> list[nn.Parameter]:
    """Give the model the weights of the problem, which it has in the same order."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    with torch.no_grad():
        for p, value in zip(parameters, problem.weights.values(), strict=True):
            p.copy_(torch.tensor(value).reshape(p.shape))
    return parameters


def block_of(problem: Problem, norm: str = "batch") -> ct.ODEBlock:
    """The block of a problem."""
    gradient = GRADIENTS[problem.settings["gradient"]]()
    if problem.kind == "conv-softplus":
        width = len(problem.weights["scale0"])
        model = augmented_classifier(
            kind="input-layer", width=width, solver=solver_of(problem, norm), gradient=gradient
        )
        block: ct.ODEBlock = model.block  # type: ignore[assignment]
        return block
    return ct.ODEBlock(
        module_of(problem), basis_of(problem), solver_of(problem, norm), gradient
    ).train()


def case(
    problem: Problem,
    model: nn.Module,
    forward: Callable[[], Tensor],
    of: Callable[[Tensor], Tensor] = loss,
    note: str = "",
) -> Case:
    """One forward and backward of a model."""
    parameters = filled(model, problem)
    if problem.settings.get("compile"):
        model.compile()

    def step() -> object:
        return torch.autograd.grad(of(forward()), parameters)

    def results() -> Outcome:
        with ct.count_evaluations(model) as counted:
            z = forward()
            gradients = torch.autograd.grad(of(z), parameters)
        return outcome(z, problem.weights, gradients, counted.forward + counted.backward)

    return Case(step, results, note)


def block(problem: Problem) -> Case:
    """A block on the whole batch."""
    model, x = block_of(problem), tensors(problem)["x"]
    return case(problem, model, lambda: model(x))


def flow(problem: Problem) -> Case:
    """The log-density of data under a flow."""
    given = tensors(problem)
    x, noise = given["x"], given["noise"]
    prior = Independent(Normal(torch.zeros(x.shape[1]), torch.ones(x.shape[1])), 1)
    trace = problem.settings["trace"]
    model = ContinuousFlow(
        module_of(problem), prior, trace=trace, solver=solver_of(problem),
        gradient=GRADIENTS[problem.settings["gradient"]](),
    )  # fmt: skip
    # All sides take the same noise, so that their results can be compared.
    arguments = {"noise": noise} if trace == "hutchinson" else {}
    if arguments and "noise" not in inspect.signature(model.log_prob).parameters:
        # `--before` may name a version in which `log_prob` does not take the noise.
        arguments = {}
        model._noise = lambda x: noise  # type: ignore[assignment]
    return case(problem, model, lambda: model.log_prob(x, **arguments), lambda p: -p.mean())


def spans(problem: Problem) -> Case:
    """Each sample over its own span."""
    given = tensors(problem)

    class Given(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return given["ends"]

    model = AdaptiveDepth(block_of(problem, norm="sample"), Given(), positive=None)
    note = "all samples take common steps, each in shares of its own span"
    return case(problem, model, lambda: model(given["x"]), note=note)


def side() -> Side:
    """All rows."""
    blocks = (
        "fixed-small", "fixed-large", "adaptive-tiny", "adaptive-medium", "galerkin",
        "conv-stateful", "conv-adaptive", "transformer",
    )  # fmt: skip
    build = {**dict.fromkeys(blocks, block), "cnf": flow, "per-sample": spans}
    return Side("continua", ct.__version__, build, torch.set_num_threads)


if __name__ == "__main__":
    serve(side())
