"""Seven classifiers of images, their accuracy and their memory (table 1)."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from continua.files import write_whole
from continua.measure import readable_bytes

from .._recipe import Recipe
from .._setup import Scale
from .._study import Circumstances, Study, percent, table
from ..dissecting._augmented import with_spread
from ._rows import (
    APPENDED,
    AUTO,
    CONSTRAINED,
    IMAGES,
    LAYERS,
    UNCONSTRAINED,
    Row,
    Trained,
    as_csv,
    bucketed,
    cifar10,
    cifar100,
    remarks,
    setting,
    steps_of,
    train,
    waves,
)

SEEDS: dict[Scale, int] = {"smoke": 1, "laptop": 1, "night": 1, "full": 3}

#: of the row that the paper's claim is about, and of those below it
BEST, BELOW = "T-NANODE-10", ("Auto", "Con. ResNet", "B-NANODE-10")

#: the paper's activation and parameter memory in GB; 100 stands for a bucket per step
PAPER_MEMORY = {
    "Auto": (0.3, 2.8e-4), "AppNODE": (0.3, 2.8e-4), "Con. ResNet": (3.0, 2.8e-4),
    "Uncon. ResNet": (3.0, 2.8e-3), "B-NANODE-10": (0.3, 2.8e-3), "T-NANODE-10": (0.3, 5.6e-3),
    "B-NANODE-100": (0.3, 2.8e-2),
}  # fmt: skip
PAPER_10 = {
    "Auto": 82.98, "AppNODE": 83.20, "Con. ResNet": 82.35, "Uncon. ResNet": 86.72,
    "B-NANODE-10": 84.38, "T-NANODE-10": 90.10, "B-NANODE-100": 93.22,
}  # fmt: skip
PAPER_100 = {
    "Auto": 50.33, "AppNODE": 60.68, "Con. ResNet": 54.69, "Uncon. ResNet": 60.91,
    "B-NANODE-10": 51.66, "T-NANODE-10": 66.49, "B-NANODE-100": 64.06,
}  # fmt: skip

HEAD = (
    "model", "test accuracy", "activations of a step", "sets of weights", "weights",
    "seconds per step", "accuracy (paper)", "activations (paper)", "weights (paper)",
)  # fmt: skip


def rows(steps: int) -> tuple[Row, ...]:
    """The table's models with flows of so many steps; the last has a bucket for each."""
    return (
        AUTO, APPENDED, CONSTRAINED, UNCONSTRAINED, bucketed(10), waves(10), bucketed(steps),
    )  # fmt: skip


@dataclass(frozen=True)
class Table1(Study):
    """Autonomous, with time appended, residual, in buckets and trigonometric.

    Attributes:
        recipe: of the flows.
        paper: its accuracies in percent.
    """

    recipe: Recipe = cifar10
    paper: Mapping[str, float] = field(default_factory=dict)

    def perform(self, here: Circumstances) -> tuple[list[str], dict[str, Any]]:
        steps = steps_of(self.recipe, here.scale)
        runs: dict[str, list[Trained]] = {}
        for row in rows(steps):
            seeds = range(here.seed, here.seed + SEEDS[here.scale])
            runs[row.name] = [
                train(replace(here, seed=seed), self.recipe, row)[1] for seed in seeds
            ]
        each = [run for one in runs.values() for run in one]
        write_whole(here.folder / "runs.csv", as_csv(each).encode())
        data = self.recipe.scales[here.scale].config()["data"]
        batch = self.recipe.scales[here.scale].training.batch_size
        elsewhere = (
            ""
            if data in IMAGES
            else " These are not the paper's images: its accuracies compare with nothing here."
        )
        renamed = (
            ""
            if steps == 100
            else f" The last row has a bucket for each of its {steps} steps, where the paper's "
            "B-NANODE-100 has a hundred; the paper's numbers beside it are those."
        )
        return [
            setting(self.recipe, here.scale),
            table(HEAD, [self._row(name, one, steps) for name, one in runs.items()]),
            f"Seeds: {SEEDS[here.scale]}. Activations are the bytes that autograd keeps of one "
            f"training step with {batch} images, counted by `continua.memory`. The columns marked "
            "as the paper's are from its table 1 (means of 3 runs; batch and widths not stated), "
            f"not measured here.{renamed}{elsewhere} `runs.csv` has every run.",
            *verdicts(runs),
            *remarks(rows(steps), steps),
        ], {"runs": [asdict(run) for run in each], "paper": dict(self.paper), "steps": steps}

    def _row(self, name: str, each: Sequence[Trained], steps: int) -> tuple[str, ...]:
        known = "B-NANODE-100" if name == f"B-NANODE-{steps}" else name
        activations, weights = PAPER_MEMORY[known]
        papers = (
            f"{self.paper[known]:.2f} %",
            f"{activations:g} GB",
            readable_bytes(round(1e9 * weights)),
        )
        done = [run for run in each if run.accuracy is not None]
        if not done:
            return (name, "diverged", "", "", "", "", *papers)
        first = done[0]
        assert first.saved is not None
        assert first.weights is not None
        return (
            name,
            with_spread([100 * (run.accuracy or 0) for run in done], " %", 2),
            readable_bytes(first.saved),
            f"{first.functions}",
            readable_bytes(first.weights),
            f"{statistics.fmean(run.seconds or 0 for run in done):.3g}",
            *papers,
        )


def verdicts(runs: Mapping[str, Sequence[Trained]]) -> list[str]:
    """Whether the paper's order is found here, and what it costs in memory."""
    accuracy = {
        name: statistics.fmean(found)
        for name, each in runs.items()
        if (found := [run.accuracy for run in each if run.accuracy is not None])
    }
    needed = (BEST, *BELOW)
    if missing := [name for name in needed if name not in accuracy]:
        return [f"The order cannot be compared: {', '.join(missing)} diverged."]
    above = [name for name in BELOW if accuracy[BEST] > accuracy[name]]
    order = sorted(accuracy, key=lambda name: -accuracy[name])
    told = ", ".join(f"{name} {percent(accuracy[name])}" for name in order)
    count = sum(run.samples or 0 for run in runs[BEST])
    noise = math.sqrt(accuracy[BEST] * (1 - accuracy[BEST]) / count)
    saved = {name: each[0].saved for name, each in runs.items() if each[0].saved}
    out = [
        f"The paper finds {BEST} above {', '.join(BELOW[:-1])} and {BELOW[-1]}: this "
        f"{'holds' if len(above) == len(BELOW) else 'does not hold'} here, where it is above "
        f"{' and '.join(above) if above else 'none of them'}. From high to low: {told}. The "
        f"test images alone leave a standard error of {100 * noise:.2f} points on each: smaller "
        "differences say little."
    ]
    if {BEST, "Uncon. ResNet"} <= saved.keys():
        ratio = saved["Uncon. ResNet"] / saved[BEST]
        out.append(
            f"A residual network of {LAYERS} layers keeps {ratio:.1f} times the activations of a "
            "flow, stem and head included, whatever the flow's steps (the paper: 10 times)."
        )
    return out


TAKES: dict[Scale, str] = {
    "smoke": "seconds, on the embedded digits",
    "laptop": "half an hour of one core",
    "night": "eighteen minutes of one core",
    "full": "days; use a GPU",
}
STUDIES = (
    Table1(
        "nanode/table1",
        "Seven classifiers of CIFAR-10: accuracy, activations and weights",
        TAKES,
        cifar10,
        PAPER_10,
    ),
    Table1(
        "nanode/table1-cifar100",
        "Seven classifiers of CIFAR-100: accuracy, activations and weights",
        TAKES,
        cifar100,
        PAPER_100,
    ),
)
