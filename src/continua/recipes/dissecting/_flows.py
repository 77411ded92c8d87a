"""Conditional densities: two classes that change places (figure 4)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributions import Distribution, Independent, Normal

import continua as ct
from continua import plot

from .._output import write_figure
from .._study import Circumstances, Study, table
from .._toy import train_steps
from ._reflection import mlp

STEPS = {"smoke": 2, "laptop": 150, "full": 1000}
BATCH = {"smoke": 16, "laptop": 128, "full": 512}
SPREAD = 0.3
ENTROPY = 0.5 * math.log(2 * math.pi * math.e * SPREAD**2)


def prior(label: Tensor) -> Distribution:
    """Where the other class is: class 0 lies at -1, class 1 at +1."""
    mean = 1 - 2 * label.float().reshape(-1, 1)
    return Independent(Normal(mean, SPREAD), 1)


def drawn(count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Data of both classes, half each, and their labels."""
    label = torch.arange(count) % 2
    noise = SPREAD * torch.randn(count, 1, generator=generator)
    return (2 * label.float() - 1).reshape(-1, 1) + noise, label


class Plain(ct.Field):
    """A field that sees nothing but its state."""

    def __init__(self) -> None:
        super().__init__()
        self.net = mlp(1, 32, 1)

    def forward(self, s: Tensor, z: Tensor, x: Any, *args: Any, **kwargs: Any) -> Tensor:
        out: Tensor = self.net(z)
        return out


class Reflecting(ct.Field):
    """The field of proposition 2, which turns every sample of the prior around, and a network.

    Samples x of the prior go to T(x). A map that starts as the identity has a slope of one, and
    one that swaps the classes without tearing the line apart a negative slope: training cannot
    lead from one to the other, since in between the slope is zero and the density infinite. So
    the field starts on the right side, with T(x) = -x + 2x exp(-3).
    """

    def __init__(self) -> None:
        super().__init__()
        self.rate = nn.Parameter(torch.tensor(3.0))
        self.net = mlp(2, 32, 1)

    def forward(self, s: Tensor, z: Tensor, x: Any, *args: Any, **kwargs: Any) -> Tensor:
        out: Tensor = self.net(torch.cat([z, x], 1))
        # Depth leads from the data to the prior; sampling goes the other way.
        moved: Tensor = self.rate * (z + x) + out
        return moved


class ByClass(ct.Field):
    """A field that sees the class beside its state."""

    def __init__(self) -> None:
        super().__init__()
        self.net = mlp(2, 32, 1)

    def forward(self, s: Tensor, z: Tensor, x: Any, *args: Any, **kwargs: Any) -> Tensor:
        side = 2 * x.to(z.dtype).reshape(-1, 1) - 1
        out: Tensor = self.net(torch.cat([z, side], 1))
        return out


@dataclass(frozen=True)
class ConditionalFlow(Study):
    """Two Gaussians swap places: through each other, or not at all."""

    def perform(self, here: Circumstances) -> tuple[list[str], dict[str, Any]]:
        torch.manual_seed(here.seed)
        generator = torch.Generator().manual_seed(here.seed)
        solver = ct.Dopri5(1e-5, 1e-5)
        flows = {
            "by the prior's sample": ct.ContinuousFlow(
                Reflecting(), prior, context="sample", solver=solver
            ),
            "by the class": ct.ContinuousFlow(ByClass(), prior, context="given", solver=solver),
            "unconditional": ct.ContinuousFlow(Plain(), prior, context="given", solver=solver),
        }
        rows: list[tuple[str, ...]] = []
        facts: dict[str, Any] = {"entropy": ENTROPY}
        line = torch.linspace(-4, 4, 801).reshape(-1, 1)
        for name, flow in flows.items():

            def loss(step: int, flow: ct.ContinuousFlow = flow) -> Tensor:
                return -flow.log_prob(*drawn(BATCH[here.scale], generator)).mean()

            # A step of the first looks for samples of the prior, and takes many times as long.
            steps = STEPS[here.scale] * (1 if flow.context == "sample" else 4)
            train_steps(flow, loss, steps, name=name, anneal=True, watch=here.watch)
            x, label = drawn(1000, generator)
            labels = torch.arange(2)
            with torch.no_grad():
                likelihood = float(-flow.log_prob(x, label).mean())
                samples = flow.sample((500,), labels).squeeze(-1)  # [500, 2]
                curves = {
                    f"class {int(k)}": (
                        line.squeeze(1).tolist(),
                        flow.log_prob(line, k.expand(len(line))).exp().tolist(),
                    )
                    for k in labels
                }
            means = samples.mean(0).tolist()
            masses = [sum(density) * 0.01 for _, density in curves.values()]
            facts[name] = {
                "negative_log_likelihood": likelihood, "means": means, "masses": masses,
            }  # fmt: skip
            rows.append(
                (
                    name,
                    f"{likelihood:.3f}",
                    ", ".join(f"{m:+.3f}" for m in means),
                    ", ".join(f"{m:.4f}" for m in masses),
                )
            )
            drawn_samples = {f"class {i}": samples[:, i] for i in range(2)}
            file = name.replace(" ", "-").replace("'", "")
            write_figure(here.folder / f"{file}.png", plot.densities(curves, drawn_samples))
        head = ("flow", "negative log-likelihood", "means of samples", "integral of the density")
        return [
            f"Class 0 lies at -1 and class 1 at +1; each starts from where the other is. The "
            f"entropy, which no model can go below, is {ENTROPY:.3f} nats.",
            table(head, rows),
            verdict(facts, tuple(flows)),
        ], facts


def verdict(facts: dict[str, Any], names: tuple[str, ...]) -> str:
    """Which flows have learned it, in a sentence."""
    parts = []
    for name in names:
        found = facts[name]
        excess = found["negative_log_likelihood"] - ENTROPY
        means = max(abs(m - t) for m, t in zip(found["means"], (-1, 1), strict=True))
        mass = max(abs(m - 1) for m in found["masses"])
        parts.append(
            f"it is {excess:+.3f} nats from the entropy, means are off by at most "
            f"{means:.3f} and the integral by {mass:.1g}"
        )
    said = [f"{name} {part}" for name, part in zip(names, parts, strict=True)]
    return f"Conditioned {said[0]}; {said[1]}. An unconditional flow cannot: {parts[2]}."


STUDIES = (
    ConditionalFlow(
        "dissecting/conditional-flow",
        "Two classes swap places, by a data-controlled flow and by an unconditional one",
        {"smoke": "seconds", "laptop": "45 seconds of one core", "full": "an hour"},
    ),
)
