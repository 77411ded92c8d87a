"""Conditional densities: two classes that change places (figure 4)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution, Independent, Normal

import continua as ct
from continua import plot

from .._output import write_figure
from .._study import Circumstances, Study, table
from .._toy import train_steps
from ._reflection import mlp

STEPS = {"smoke": 2, "laptop": 300, "full": 1000}
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


@dataclass(frozen=True)
class ConditionalFlow(Study):
    """Two Gaussians swap places: through each other, or not at all."""

    def perform(self, here: Circumstances) -> tuple[list[str], dict[str, Any]]:
        torch.manual_seed(here.seed)
        generator = torch.Generator().manual_seed(here.seed)
        solver = ct.Dopri5(1e-5, 1e-5)
        flows = {
            "data-controlled": ct.ContinuousFlow(
                ct.DataControl(mlp(2, 32, 1)), prior, context="sample", solver=solver
            ),
            "unconditional": ct.ContinuousFlow(Plain(), prior, context="given", solver=solver),
        }
        rows: list[tuple[str, ...]] = []
        facts: dict[str, Any] = {"entropy": ENTROPY}
        line = torch.linspace(-4, 4, 801).reshape(-1, 1)
        for name, flow in flows.items():

            def loss(step: int, flow: ct.ContinuousFlow = flow) -> Tensor:
                return -flow.log_prob(*drawn(BATCH[here.scale], generator)).mean()

            train_steps(flow, loss, STEPS[here.scale], name=name, anneal=True, watch=here.watch)
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
            write_figure(here.folder / f"{name}.png", plot.densities(curves, drawn_samples))
        head = ("flow", "negative log-likelihood", "means of samples", "integral of the density")
        return [
            f"Class 0 lies at -1 and class 1 at +1; each starts from where the other is. The "
            f"entropy, which no model can go below, is {ENTROPY:.3f} nats.",
            table(head, rows),
        ], facts


STUDIES = (
    ConditionalFlow(
        "dissecting/conditional-flow",
        "Two classes swap places, by a data-controlled flow and by an unconditional one",
        {"smoke": "seconds", "laptop": "ten minutes on two cores", "full": "an hour"},
    ),
)
