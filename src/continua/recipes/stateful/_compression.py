"""Train once, ship many sizes: the compression study."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .._grid import Grid
from .._measure import Sweep
from .._recipe import Recipe
from .._study import Circumstances, Study, describe_result, percent, table
from .._sweep import run_sweep
from ._images import cifar10, cifar10_resnet, digits, mnist


@dataclass(frozen=True)
class Compression(Study):
    """A run, a discrete baseline where there is one, and the sweep over sizes and steps."""

    recipe: Recipe | None = None
    baseline: Recipe | None = None
    claim: str = ""

    def perform(self, here: Circumstances) -> tuple[list[str], dict[str, Any]]:
        assert self.recipe is not None
        run, result = here.train(self.recipe, "continuous")
        paragraphs = [describe_result(result) + "."]
        facts: dict[str, Any] = {"continuous": result}
        if self.baseline is not None:
            _, facts["baseline"] = here.train(self.baseline, "baseline")
            paragraphs.append(f"The discrete baseline: {describe_result(facts['baseline'])}.")
        if self.claim:
            paragraphs.append(self.claim)
        sweep = run_sweep(run, Grid(), part="test", watch=here.watch)
        facts["trials"] = [vars(trial) for trial in (sweep.source, *sweep.trials)]
        paragraphs.append(trials_table(sweep))
        paragraphs += list(sweep.sentences.values())
        return paragraphs, facts


def trials_table(sweep: Sweep) -> str:
    """The variants of a model as a table in Markdown."""
    source = sweep.source
    rows = []
    for t in (source, *sweep.trials):
        rows.append(
            (
                f"`{t.basis}({t.size})`",
                f"`{t.scheme}(steps={t.steps})`",
                t.method,
                f"{t.parameters:,}",
                percent(t.accuracy),
                f"{100 * (t.accuracy - source.accuracy):+.2f}",
                "" if t.milliseconds is None else f"{t.milliseconds:.1f}",
            )
        )
    head = ("basis", "solver", "by", "parameters", "accuracy", "points", f"ms per {sweep.batch}")
    return table(head, rows)


STUDIES = (
    Compression(
        "stateful/digits",
        "The embedded digits: train with refinement, compress without retraining",
        {"smoke": "seconds", "laptop": "half a minute", "full": "a minute"},
        digits,
    ),
    Compression(
        "stateful/mnist",
        "MNIST: train with refinement, compress without retraining",
        {
            "smoke": "two minutes",
            "laptop": "45 minutes on two cores",
            "full": "hours; use a GPU",
        },
        mnist,
    ),
    Compression(
        "stateful/cifar10",
        "CIFAR-10: the deep ContinuousNet, a ResNet of as many parameters, and every size",
        {
            "smoke": "four minutes",
            "laptop": "two hours of one core, estimated",
            "night": "three hours of one core, estimated",
            "full": "the paper's setting; use a GPU",
        },
        cifar10,
        cifar10_resnet,
        "The paper's own numbers, at 180 epochs and 16 functions: 93.7 % unrefined and 92.7 % "
        "refined for 1.63 M parameters, 92.7 % with half the functions and 92.0 % with half the "
        "steps too (its README); 94.4 % at best (the paper). They are the paper's, not ours.",
    ),
)
