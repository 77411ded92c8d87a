"""Why the block carries state: normalisation over depth."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import continua as ct
from continua.train import Training, evaluate

from .._image_setup import ImageSetup
from .._recipe import Recipe
from .._study import Circumstances, Study, percent, table

#: what stands in the table, and the settings that make it
ROWS = {
    "batch norm, statistics over depth": ("norm=batch",),
    "batch norm, one statistic for all depths": ("norm=shared",),
    "group norm": ("norm=group",),
    "none": ("norm=none",),
    "none, gain starting at zero (SkipInit)": ("norm=none", "skip_init=true"),
}

small = Recipe(
    "stateful/norms",
    "a network of 4 buckets and 4 Euler steps with another normalisation each",
    {
        "smoke": ImageSetup(
            data="digits", stages=1, width=8, basis="PiecewiseConstant(4)", epsilon=4.0,
            solver="Euler(steps=4)", samples=128, training=Training(epochs=1, batch_size=64),
        ),
        "laptop": ImageSetup(
            data="cifar10", stages=2, basis="PiecewiseConstant(4)", epsilon=4.0, pad=4,
            mirror=True, solver="Euler(steps=4)", samples=10_000, channels_last=True,
            training=Training(epochs=6, warmup=1, clip=5.0),
        ),
        "full": ImageSetup(
            data="cifar10", basis="PiecewiseConstant(8)", epsilon=8.0, pad=4, mirror=True,
            solver="Euler(steps=8)", channels_last=True,
            training=Training(epochs=160, schedule="step", milestones=(80, 120, 140)),
        ),
    },
    {"smoke": "seconds", "laptop": "minutes each", "full": "hours; use a GPU"},
)  # fmt: skip


@dataclass(frozen=True)
class Norms(Study):
    """One network with five normalisations."""

    def perform(self, here: Circumstances) -> tuple[list[str], dict[str, Any]]:
        rows: list[tuple[str, ...]] = []
        facts: dict[str, Any] = {}
        for label, settings in ROWS.items():
            name = "-".join(s.partition("=")[2] for s in settings)
            try:
                run, result = here.train(small, name, settings)
            except ct.SolveError as error:
                rows.append((label, "diverged", "", ""))
                facts[name] = {"diverged": str(error)}
                continue
            _, task = run.load()
            model = run.model()
            half = evaluate(run.laid_out(ct.compress(model, ct.PiecewiseConstant(2))), task, "test")
            train = evaluate(model, task, "train", limit=task.size("test"))
            facts[name] = {"result": result, "half": half, "train": train}
            rows.append(
                (
                    label,
                    percent(result["test"]["accuracy"]),
                    percent(train["accuracy"]),
                    percent(half["accuracy"]),
                )
            )
        head = ("normalisation", "test", "training images, evaluation mode", "test, 2 functions")
        return [table(head, rows)], facts


STUDIES = (
    Norms(
        "stateful/norms",
        "Continuous batch norm beside group norm, none, and one shared statistic",
        {
            "smoke": "seconds",
            "laptop": "half an hour on two cores",
            "full": "hours; use a GPU",
        },
    ),
)
