"""Accuracy over the order of the weights' basis (figures 1 and 2)."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from continua import plot
from continua.files import write_whole

from .._output import write_figure
from .._setup import Scale
from .._study import Circumstances, Study, percent, table
from ._rows import (
    CONSTRAINED,
    UNCONSTRAINED,
    Row,
    Trained,
    as_csv,
    bucketed,
    cifar10,
    remarks,
    setting,
    steps_of,
    train,
    waves,
)

#: how a row of each family is made from its order
FAMILIES = {"T-NANODE": waves, "B-NANODE": bucketed}


@dataclass(frozen=True)
class Orders(Study):
    """Families of bases at several orders, beside residual networks.

    Attributes:
        part: whose accuracy is drawn.
        families: those to train.
        orders: of each, by scale.
        references: models without an order.
    """

    part: Literal["train", "test"] = "test"
    families: Sequence[str] = ("T-NANODE",)
    orders: Mapping[Scale, Sequence[int]] = field(default_factory=dict)
    references: Sequence[Row] = (CONSTRAINED,)

    def perform(self, here: Circumstances) -> tuple[list[str], dict[str, Any]]:
        orders = self.orders[here.scale]
        grid = {family: {n: FAMILIES[family](n) for n in orders} for family in self.families}
        rows = [*self.references, *(row for line in grid.values() for row in line.values())]
        runs = {
            row.name: train(here, cifar10, row, train_part=self.part == "train")[1] for row in rows
        }
        write_whole(here.folder / "runs.csv", as_csv(runs.values()).encode())
        found = {
            name: share for name, run in runs.items() if (share := self._share(run)) is not None
        }
        lines = {
            family: {n: found[row.name] for n, row in line.items() if row.name in found}
            for family, line in grid.items()
        }
        lines = {family: line for family, line in lines.items() if line}
        references = {row.name: found[row.name] for row in self.references if row.name in found}
        steps = steps_of(cifar10, here.scale)
        what = "training accuracy" if self.part == "train" else "test accuracy"
        if lines:
            figure = plot.orders(
                lines, references, samples=self._samples(here.scale, runs), what=what,
                xlabel=f"order, or number of buckets, with {steps} steps"
                if "B-NANODE" in lines
                else f"trigonometric order, with {steps} steps",
            )  # fmt: skip
            write_figure(here.folder / "orders.png", figure)
        cells = [
            (
                row.name,
                f"{runs[row.name].parameters:,}" if row.name in found else "",
                percent(found[row.name]) if row.name in found else "diverged",
            )
            for row in rows
        ]
        return [
            setting(cifar10, here.scale),
            table(("model", "parameters", what), cells),
            f"One seed. The paper's figure has orders {self.orders['full'][0]} to "
            f"{self.orders['full'][-1]} at 100 steps; here there are "
            f"{', '.join(map(str, orders))} at {steps}. `orders.png` draws them, `runs.csv` "
            "has every run.",
            *sentences(lines, references),
            *remarks(rows, steps),
        ], {"runs": [asdict(run) for run in runs.values()], "lines": lines, "steps": steps}

    def _share(self, run: Trained) -> float | None:
        return run.train_accuracy if self.part == "train" else run.accuracy

    def _samples(self, scale: Scale, runs: Mapping[str, Trained]) -> int:
        if self.part == "train":
            return int(cifar10.scales[scale].config()["samples"] or 50_000)
        return max(run.samples or 1 for run in runs.values())


def sentences(
    lines: Mapping[str, Mapping[int, float]], references: Mapping[str, float]
) -> list[str]:
    """Whether accuracy rises with the order, and which family is above."""
    out = []
    for family, line in lines.items():
        values = [line[n] for n in sorted(line)]
        rises = all(a <= b for a, b in itertools.pairwise(values))
        first, last = min(line), max(line)
        told = f"{family} has {percent(line[first])} at order {first}"
        if len(line) > 1:
            told += f" and {percent(line[last])} at {last}"
        if len(line) > 2:
            told += f", {'never falling' if rises else 'not rising all the way'} in between"
        for name, value in references.items():
            above = [n for n in sorted(line) if line[n] > value]
            at = f"above it at {', '.join(map(str, above))}" if above else "nowhere above it"
            told += f"; {name} has {percent(value)}, and {family} is {at}"
        out.append(f"{told}.")
    if lines.keys() >= {"T-NANODE", "B-NANODE"}:
        smooth, rough = lines["T-NANODE"], lines["B-NANODE"]
        shared = sorted(smooth.keys() & rough.keys())
        above = [n for n in shared if smooth[n] > rough[n]]
        verdict = "holds" if shared and above == shared else "does not hold"
        out.append(
            "The paper finds trigonometric weights above buckets at every order: this "
            f"{verdict} here, where it is so at {len(above)} of {len(shared)} orders. "
            "A trigonometric polynomial of order d has 2d+1 coefficients, d buckets have d."
        )
    return out


STUDIES = (
    Orders(
        "nanode/figure1",
        "Training accuracy over the trigonometric order of the weights",
        {
            "smoke": "seconds, on the embedded digits",
            "laptop": "half an hour on two cores",
            "night": "thirteen minutes of one core, estimated",
            "full": "days; use a GPU",
        },
        "train",
        ("T-NANODE",),
        {
            "smoke": (1, 2),
            "laptop": (1, 4, 10),
            "night": (4, 6, 8, 10),
            "full": tuple(range(1, 31)),
        },
        (CONSTRAINED,),
    ),
    Orders(
        "nanode/figure2",
        "Test accuracy over the order of the weights, trigonometric and in buckets",
        {
            "smoke": "seconds, on the embedded digits",
            "laptop": "three quarters of an hour on two cores",
            "night": "twenty-six minutes of one core, estimated",
            "full": "days; use a GPU",
        },
        "test",
        ("T-NANODE", "B-NANODE"),
        {"smoke": (2,), "laptop": (4, 10), "night": (4, 6, 8, 10), "full": tuple(range(4, 11))},
        (CONSTRAINED, UNCONSTRAINED),
    ),
)
