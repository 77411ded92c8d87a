"""The toy classifier of Stateful ODE-Nets."""

from __future__ import annotations

from dataclasses import replace

from continua.train import Training

from .._point_setup import PointSetup
from .._recipe import Recipe

PAPER = PointSetup(
    training=Training(
        epochs=10,
        epoch_steps=500,
        batch_size=32,
        learning_rate=0.01,
        nesterov=False,
        weight_decay=0.0,
        schedule="constant",
    )
)

circles = Recipe(
    "stateful/circles",
    "two circles with the toy classifier: 3 buckets, 10 RK4 steps",
    {
        "smoke": replace(PAPER, n=600, training=replace(PAPER.training, epochs=2, epoch_steps=20)),
        "laptop": PAPER,
        "full": PAPER,
    },
    {"smoke": "seconds", "laptop": "about two minutes", "full": "about two minutes"},
)
