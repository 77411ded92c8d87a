"""Galerkin and stacked flows: two ways to let weights vary with depth (figure 2)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

import continua as ct
from continua import plot
from continua.basis import quadrature
from continua.data import load

from .._output import write_figure
from .._study import Circumstances, Study, percent, table
from .._toy import count, train_steps
from ._reflection import mlp

STEPS = {"smoke": 3, "laptop": 400, "full": 2000}
SAMPLES = {"smoke": 128, "laptop": 2048, "full": 8192}
HIDDEN = 32
#: two steps in each of the five pieces
SOLVER = ct.RK4(steps=10)
BASES = {"Galerkin": ct.Fourier(5), "stacked": ct.PiecewiseConstant(5)}
DEPTHS = [i / 40 for i in range(41)]


def variation(block: ct.ODEBlock) -> float:
    r"""The share of the weights that varies with depth, in the mean square.

    .. math:: \frac{\|\theta - \bar\theta\|}{\|\theta\|}, \qquad
              \bar\theta = \int_0^1 \theta(s)\, ds
    """
    whole = varying = 0.0
    for name, basis in block.expansion.weights.items():
        s, w = quadrature(basis)
        stack = block.field.get_parameter(name).detach().double().flatten(1)
        theta = basis(s) @ stack  # [Q, n]
        whole += float((w @ theta.square()).sum())
        varying += float((w @ (theta - w @ theta).square()).sum())
    return math.sqrt(varying / whole)


def accuracy(model: nn.Module, x: Tensor, y: Tensor) -> float:
    """The share of points on the right side."""
    with torch.no_grad():
        return float(((model(x).squeeze(1) > 0).long() == y).double().mean())


@dataclass(frozen=True)
class GalerkinStacked(Study):
    """Two moons, by weights in waves and by weights in pieces."""

    def perform(self, here: Circumstances) -> tuple[list[str], dict[str, Any]]:
        points = load("moons", seed=here.seed, n=SAMPLES[here.scale], validation=0.0)
        x, y = points.train.inputs, points.train.targets
        held_x, held_y = points.test.inputs, points.test.targets
        rows, facts = [], {}
        for name, basis in BASES.items():
            torch.manual_seed(here.seed)
            block = ct.ODEBlock(mlp(2, HIDDEN, 2), basis, SOLVER)
            model = nn.Sequential(block, nn.Linear(2, 1))

            def loss(step: int, model: nn.Module = model) -> Tensor:
                return binary_cross_entropy_with_logits(model(x).squeeze(1), y.float())

            train_steps(model, loss, STEPS[here.scale], name=name, anneal=True, watch=here.watch)
            right = accuracy(model, held_x, held_y)
            self.draw(here, name, model, block, held_x, held_y)
            # A flow that is only right on its own grid would be a network, not a flow.
            block.solver = ct.Dopri5(1e-6, 1e-6)
            facts[name] = {
                "accuracy": right,
                "accuracy_of_the_exact_flow": accuracy(model, held_x, held_y),
                "parameters": count(model),
                "variation": variation(block),
            }
            rows.append(
                (
                    name, repr(basis), f"{count(model):,}", percent(right),
                    percent(facts[name]["accuracy_of_the_exact_flow"]),
                    f"{facts[name]['variation']:.2f}",
                )
            )  # fmt: skip
        head = (
            "model", "basis", "parameters", "held-out accuracy", "by an adaptive solver",
            "share that varies with depth",
        )  # fmt: skip
        galerkin, stacked = facts["Galerkin"], facts["stacked"]
        return [
            table(head, rows),
            f"Of {len(held_y):,} held-out points the Galerkin model gets "
            f"{percent(galerkin['accuracy'])} right and the stacked one "
            f"{percent(stacked['accuracy'])}. Their weights vary with depth by "
            f"{galerkin['variation']:.2f} and {stacked['variation']:.2f} of their size: the one in "
            "waves that come back to where they began, the other in jumps, each piece a flow of "
            "its own.",
        ], facts

    @staticmethod
    def draw(
        here: Circumstances,
        name: str,
        model: nn.Module,
        block: ct.ODEBlock,
        x: Tensor,
        y: Tensor,
    ) -> None:
        """The flow through depth, in the plane, the weights, and the decisions."""
        few, labels = x[:60], y[:60]
        with torch.no_grad():
            z = block.solve(few, save_at=DEPTHS, solver=ct.Dopri5(1e-6, 1e-6)).z
        figures = {
            "flow": plot.depth_flow(DEPTHS, z, labels, title=name),
            "plane": plot.phase_flow(block, few, labels),
            "weights": plot.functions_of_depth(block, "0.weight"),
            "decision": plot.decision(model, x, y),
        }
        for kind, figure in figures.items():
            write_figure(here.folder / f"{name.lower()}-{kind}.png", figure)


STUDIES = (
    GalerkinStacked(
        "dissecting/galerkin-stacked",
        "Weights in waves and weights in pieces, on two moons",
        {"smoke": "seconds", "laptop": "15 seconds of one core", "full": "ten minutes"},
    ),
)
