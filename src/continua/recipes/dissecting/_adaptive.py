"""Reflection by adaptive depth (figure 5)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy
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
        shares = [i / 200 for i in range(201)]
        with torch.no_grad():
            error = float((model(x) + x).square().mean())
            z = model.solve(x, save_at=shares).z
            depths = model.depths(x)
        crossings = crossed(torch.tensor(shares).unsqueeze(1) * depths, z.squeeze(2))
        some = slice(None, None, 5)
        figure = plot.depth_flow(
            shares, z[:, some], (x[some, 0] > 0).long(), ends=depths[some],
            title="every sample to its own depth",
        )  # fmt: skip
        write_figure(here.folder / "flow.png", figure)
        write_figure(here.folder / "weights.png", plot.functions_of_depth(block))
        facts = {
            "mean_squared_error": error,
            "parameters": count(model),
            "depths": [round(float(d), 4) for d in depths],
            "crossings": crossings,
        }
        return [
            f"With a depth of its own for every sample the mean squared error is {error:.1g}. The "
            f"depths lie between {float(depths.min()):.2f} and {float(depths.max()):.2f}. All "
            f"follow one field, and at equal depth {crossings or 'no'} neighbours have changed "
            "places: each leaves the flow where its own target lies."
        ], facts


def crossed(depths: Tensor, z: Tensor) -> int:
    """How many neighbours on the line have changed places at some depth that both reach.

    Args:
        depths: those of each sample's states, `[S, B]`.
        z: the states, in the order of the samples on the line.
    """
    found = 0
    for i in range(z.shape[1] - 1):
        low, high = (
            numpy.interp(
                depths[:, i].numpy(), depths[:, j].numpy(), z[:, j].numpy(), right=math.nan
            )
            for j in (i, i + 1)
        )
        found += bool((high < low - 1e-3).any())  # more than solver and interpolation can do
    return found


STUDIES = (
    AdaptiveReflection(
        "dissecting/adaptive-depth",
        "The map x -> -x with a depth of its own for every sample",
        {"smoke": "seconds", "laptop": "a minute of one core", "full": "ten minutes"},
    ),
)
