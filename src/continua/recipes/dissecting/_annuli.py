"""Concentric annuli without augmentation (figure 7), and superfluous flows (figure 6)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

import continua as ct
from continua import plot
from continua.data import load
from continua.models import ablate

from .._output import write_figure
from .._study import Circumstances, Study, percent, table
from .._toy import count, train_steps

STEPS = {"smoke": 3, "laptop": 1000, "full": 2000}
SAMPLES = {"smoke": 200, "laptop": 1024, "full": 2048}


def annuli(here: Circumstances) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Training points and labels, and held-out ones."""
    points = load("annuli", seed=here.seed, n=2 * SAMPLES[here.scale])
    return (
        points.train.inputs, points.train.targets, points.test.inputs, points.test.targets,
    )  # fmt: skip


def settled(last: nn.Linear) -> nn.Linear:
    """The layer starting from zero, so that the flow starts as the identity."""
    nn.init.zeros_(last.weight)
    nn.init.zeros_(last.bias)
    return last


def fields() -> dict[str, ct.ODEBlock]:
    """The four models of the figure, without augmentation."""
    solver, gradient = ct.Dopri5(1e-5, 1e-5), ct.Adjoint()
    vanilla = nn.Sequential(
        nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), settled(nn.Linear(32, 2))
    )
    depth = ct.DepthConcat(
        nn.Sequential(nn.Linear(3, 32), nn.Tanh()),
        nn.Sequential(nn.Linear(33, 32), nn.Tanh(), settled(nn.Linear(32, 2))),
    )
    galerkin = nn.Sequential(
        nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 2)
    )
    control = ct.DataControl(nn.Sequential(nn.Linear(4, 32), nn.Softplus(), nn.Linear(32, 2)))
    return {
        "vanilla": ct.ODEBlock(vanilla, ct.Constant(), solver, gradient),
        "depth-concat": ct.ODEBlock(depth, ct.Constant(), solver, gradient),
        "Galerkin": ct.ODEBlock(
            galerkin, {"2.*": ct.Fourier(5), "*": ct.Constant()}, solver, gradient
        ),
        "data-controlled": ct.ODEBlock(control, ct.Constant(), solver, gradient),
    }


@dataclass(frozen=True)
class Annuli(Study):
    """Four flows of the plane and a linear read-out."""

    def perform(self, here: Circumstances) -> tuple[list[str], dict[str, Any]]:
        torch.manual_seed(here.seed)
        x, y, held_x, held_y = annuli(here)
        rows, facts = [], {}
        for name, block in fields().items():
            model = nn.Sequential(block, nn.Linear(2, 1))

            def loss(step: int, model: nn.Module = model) -> Tensor:
                return binary_cross_entropy_with_logits(model(x).squeeze(1), y.float())

            train_steps(
                model, loss, STEPS[here.scale], name=name, rate=1e-2, weight_decay=1e-6,
                anneal=True, watch=here.watch,
            )  # fmt: skip
            with torch.no_grad():
                right = (model(held_x).squeeze(1) > 0).long() == held_y
                stats = block.solve(held_x).stats
            facts[name] = {
                "accuracy": float(right.double().mean()),
                "parameters": count(model),
                "evaluations": stats.evaluations,
            }
            rows.append(
                (name, f"{count(model):,}", percent(facts[name]["accuracy"]), stats.evaluations)
            )
            slug = name.lower()
            figure = plot.decision(model, held_x, held_y)
            write_figure(here.folder / f"{slug}-decision.png", figure)
            depths = [i / 20 for i in range(21)]
            with torch.no_grad():
                z = block.solve(held_x[:60], save_at=depths).z
            write_figure(
                here.folder / f"{slug}-flow.png",
                plot.depth_flow(depths, z, held_y[:60], title=name),
            )
        head = ("model", "parameters", "held-out accuracy", "evaluations")
        control = facts["data-controlled"]
        return [
            table(head, rows),
            f"Of {len(held_y)} held-out points. A flow of the plane keeps what is inside the outer "
            "ring inside: for a linear read-out it must stretch the outer ring and squeeze the "
            "inner one out through a gap between its points. With a flow of its own for every "
            f"sample nothing has to be torn: {percent(control['accuracy'])} with "
            f"{control['parameters']:,} parameters.",
        ], facts


@dataclass(frozen=True)
class InputNetwork(Study):
    """Two nonlinear layers before the flow, and what is left for the flow to do."""

    def perform(self, here: Circumstances) -> tuple[list[str], dict[str, Any]]:
        torch.manual_seed(here.seed)
        x, y, held_x, held_y = annuli(here)
        block = ct.ODEBlock(
            nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 2)),
            solver=ct.Dopri5(1e-4, 1e-4),
        )
        before = nn.Sequential(
            nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 2)
        )
        model = nn.Sequential(before, block, nn.Linear(2, 1))

        def loss(step: int) -> Tensor:
            return binary_cross_entropy_with_logits(model(x).squeeze(1), y.float())

        train_steps(
            model, loss, STEPS[here.scale], name="input network", anneal=True, watch=here.watch
        )
        report = ablate(model, held_x, held_y)
        write_figure(here.folder / "ablation.png", plot.ablation(report))
        facts = {"whole": report.whole, "without_flow": report.without["1"]}
        verdict = "superfluous" if report.whole - report.without["1"] < 0.05 else "needed"
        return [
            f"With two nonlinear layers before it, the accuracy is {percent(report.whole)} with "
            f"the flow and {percent(report.without['1'])} without: the flow is {verdict} here."
        ], facts


STUDIES = (
    Annuli(
        "dissecting/annuli",
        "Vanilla, depth-concat, Galerkin and data-controlled flows on concentric annuli",
        {"smoke": "seconds", "laptop": "ten minutes on two cores", "full": "half an hour"},
    ),
    InputNetwork(
        "dissecting/input-network",
        "A flow behind nonlinear input layers, ablated",
        {"smoke": "seconds", "laptop": "12 seconds of one core", "full": "five minutes"},
    ),
)
