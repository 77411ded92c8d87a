"""Reflection by adaptive depth (figure 5)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import continua as ct
from continua import plot

from .._output import write_figure
from .._study import Circumstances, Study
from .._toy import count, train_steps
from ._reflection import line, mlp

STEPS = {"smoke": 3, "laptop": 2000, "full": 4000}


@dataclass(frozen=True)
class AdaptiveReflection(Study):
    """The map x -> -x on the line, where every sample goes as deep as it needs.

    All samples follow one field that pushes one way and then the other; each leaves it in time.
    """

    def perform(self, here: Circumstances) -> tuple[list[str], dict[str, Any]]:
        torch.manual_seed(here.seed)
        x = line()
        block = ct.ODEBlock(mlp(1, 8, 1), ct.Legendre(3), ct.RK4(steps=10), init="independent")
        model = ct.AdaptiveDepth(block, mlp(1, 16, 1))

        def loss(step: int) -> Tensor:
            out: Tensor = (model(x) + x).square().mean()
            return out

        train_steps(
            model, loss, STEPS[here.scale], name="adaptive depth", anneal=True, watch=here.watch
        )
        shares = [i / 20 for i in range(21)]
        with torch.no_grad():
            error = float((model(x) + x).square().mean())
            z = model.solve(x[::5], save_at=shares).z
            depths = model.depths(x)
        labels = (x[::5, 0] > 0).long()
        figure = plot.depth_flow(shares, z, labels, title="over the share of each one's depth")
        write_figure(here.folder / "flow.png", figure)
        write_figure(here.folder / "weights.png", plot.functions_of_depth(block))
        facts = {
            "mean_squared_error": error,
            "parameters": count(model),
            "depths": [round(float(d), 4) for d in depths],
        }
        return [
            f"With a depth of its own for every sample the mean squared error is {error:.1g}. The "
            f"depths lie between {float(depths.min()):.2f} and {float(depths.max()):.2f}: all "
            "follow one field, and none has to pass another at the same depth."
        ], facts


STUDIES = (
    AdaptiveReflection(
        "dissecting/adaptive-depth",
        "The map x -> -x with a depth of its own for every sample",
        {"smoke": "seconds", "laptop": "five minutes on two cores", "full": "ten minutes"},
    ),
)
