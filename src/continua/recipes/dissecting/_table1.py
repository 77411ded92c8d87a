"""How to augment the state of an image classifier (table 1)."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import continua as ct
from continua import plot
from continua.files import write_whole
from continua.train import Training, read_history

from .._image_setup import ImageSetup
from .._output import csv_text, write_figure
from .._recipe import Recipe
from .._run import Run
from .._setup import Scale
from .._study import Circumstances, Study, percent, table

#: the kinds of model, as the table calls them
KINDS = {
    "vanilla": "vanilla",
    "zero": "0-augmented",
    "input-layer": "input layer",
    "second-order": "second order",
}
RICH, POOR = ("input-layer", "second-order"), ("vanilla", "zero")
SEEDS: dict[Scale, int] = {"smoke": 2, "laptop": 2, "night": 2, "full": 10}

#: the paper's own course; the rate falls by a tenth after every 5 epochs
PAPER = Training(
    epochs=20, batch_size=64, optimizer="adamw", learning_rate=1e-3, weight_decay=5e-4,
    schedule="step", milestones=(5, 10, 15), decay=0.9,
)  # fmt: skip
FULL = ImageSetup(
    data="mnist", validation=0.0, model="augmented_classifier", width=32, basis="Constant()",
    # Not channels_last: torch 2.13 crashes on the CPU when group norm in that layout is
    # differentiated by its weights alone, as the adjoint does.
    solver="Dopri5(1e-4, 1e-4)", training=PAPER,
)  # fmt: skip


#: the beginning of it, at the first rate, in small batches: on a processor a step of 64 images
#: takes four times as long as one of 16, and what counts early is the number of steps
LAPTOP = replace(PAPER, epochs=8, epoch_steps=16, batch_size=16, milestones=())
SMOKE = replace(
    FULL, data="digits", width=8, samples=64, held_out=64,
    training=replace(LAPTOP, epochs=2, epoch_steps=1),
)  # fmt: skip

TAKES: dict[Scale, str] = {
    "smoke": "seconds", "laptop": "two to five minutes each", "night": "an hour each",
    "full": "hours; use a GPU",
}  # fmt: skip
mnist = Recipe(
    "dissecting/table1-mnist",
    "MNIST with one flow; kind= and width= say how it is augmented (vanilla has width=48)",
    {
        "smoke": SMOKE,
        # Backpropagation is exact and takes no more time than the adjoint, for zeros a quarter
        # of it (benchmarks/augmented.py); in batches of 16 there is memory for it.
        "laptop": replace(
            FULL, gradient="Backprop()", held_out=2_000, training=replace(LAPTOP, epoch_steps=32)
        ),
        "night": replace(
            FULL, gradient="Backprop()", held_out=2_000, training=replace(LAPTOP, epoch_steps=469)
        ),
        "full": FULL,
    },
    TAKES,
)

cifar10 = Recipe(
    "dissecting/table1-cifar",
    "CIFAR-10 with one flow; kind= and width= say how it is augmented (vanilla has width=62)",
    {
        "smoke": SMOKE,
        "laptop": replace(
            FULL, data="cifar10", width=42, samples=1_024, held_out=500,
            training=replace(LAPTOP, epoch_steps=8),
        ),
        "night": replace(
            FULL, data="cifar10", width=42, gradient="Backprop()", held_out=2_000,
            training=replace(LAPTOP, epoch_steps=128),
        ),
        "full": replace(FULL, data="cifar10", width=42),
    },
    TAKES,
)  # fmt: skip

RECIPES = (mnist, cifar10)


@dataclass(frozen=True)
class Trained:
    """What one training came to.

    Attributes:
        kind: of the model.
        seed: of the training.
        parameters: of the model.
        accuracy: on the test images; None if the training diverged.
        forward: evaluations per step, mean over all steps.
        backward: the same of the backward pass.
        seconds: per step.
        course: forward evaluations per step, mean over each epoch.
    """

    kind: str
    seed: int
    parameters: int | None = None
    accuracy: float | None = None
    forward: float | None = None
    backward: float | None = None
    seconds: float | None = None
    course: Sequence[float] = ()


@dataclass(frozen=True)
class Augmentations(Study):
    """Four ways to augment a flow, several seeds each.

    Attributes:
        recipe: with the widths of all kinds but the vanilla one.
        vanilla: the width of that one.
        paper: its accuracy in percent, evaluations and thousands of parameters, by kind.
    """

    recipe: Recipe = mnist
    vanilla: int = 48
    paper: Mapping[str, tuple[float, int, float]] = field(default_factory=dict)

    def perform(self, here: Circumstances) -> tuple[list[str], dict[str, Any]]:
        runs: dict[str, list[Trained]] = {}
        for kind in KINDS:
            seeds = range(here.seed, here.seed + SEEDS[here.scale])
            runs[kind] = [self._trained(replace(here, seed=seed), kind) for seed in seeds]
        write_whole(here.folder / "runs.csv", as_csv(runs).encode())
        course = self.recipe.scales[here.scale].training
        lines = {
            KINDS[kind]: [statistics.fmean(v) for v in zip(*courses, strict=True)]
            for kind, each in runs.items()
            if (courses := [one.course for one in each if one.course])
        }
        if lines:
            steps = course.epoch_steps
            xlabel = "epoch" if steps is None else f"epoch of {steps} steps"
            figure = plot.evaluations(lines, xlabel=xlabel)
            write_figure(here.folder / "evaluations.png", figure)
        return [
            self._setting(here),
            table(HEAD, [self._row(kind, each) for kind, each in runs.items()]),
            EXPLANATION,
            *verdicts(runs),
        ], {"runs": [vars(one) for each in runs.values() for one in each], "paper": self.paper}

    def _trained(self, here: Circumstances, kind: str) -> Trained:
        width = self.recipe.scales[here.scale].config()["width"]
        if kind == "vanilla":  # in proportion, at scales with narrower models
            width = width * self.vanilla // self.recipe.scales["full"].config()["width"]
        name = f"{kind}-{here.seed}"
        try:
            run, result = here.train(self.recipe, name, [f"kind={kind}", f"width={width}"])
        except ct.SolveError:
            return Trained(kind, here.seed)
        return measured(kind, here.seed, run, result)

    def _setting(self, here: Circumstances) -> str:
        setup = self.recipe.scales[here.scale].config()
        course = self.recipe.scales[here.scale].training
        images = "all training images"
        if setup["samples"] is not None:
            images = f"the first {setup['samples']:,} training images"
        tested = "all test images"
        if setup["held_out"] is not None:
            tested = f"the first {setup['held_out']:,} test images"
        steps = "" if course.epoch_steps is None else f" of {course.epoch_steps} steps"
        differentiated = "the adjoint" if setup["gradient"] is None else f"`{setup['gradient']}`"
        shorter = "" if here.scale == "full" else (
            f" The paper trains {PAPER.epochs} epochs of all images in batches of "
            f"{PAPER.batch_size}, with {SEEDS['full']} seeds: accuracies here are of a much "
            "shorter training, and only their order can be compared."
        )  # fmt: skip
        return (
            f"{setup['data']}: {images}, {course.epochs} epochs{steps}, batches of "
            f"{course.batch_size}, no data augmentation, AdamW with rate "
            f"{course.learning_rate:g} and weight decay {course.weight_decay:g}, "
            f"`{setup['solver']}` and {differentiated}; {SEEDS[here.scale]} seeds, the model of "
            f"the last step, tested on {tested}.{shorter}"
        )

    def _row(self, kind: str, each: Sequence[Trained]) -> tuple[str, ...]:
        accuracy, evaluations, parameters = self.paper[kind]
        done = [one for one in each if one.accuracy is not None]
        papers = (f"{accuracy:.1f} %", f"{evaluations}", f"{parameters:.1f}K")
        if not done:
            return (KINDS[kind], "", "diverged", "", "", "", *papers)
        return (
            KINDS[kind] + ("" if len(done) == len(each) else f" ({len(done)} of {len(each)} runs)"),
            f"{done[0].parameters:,}",
            with_spread([100 * v for v in values(done, "accuracy")], " %", 2),
            with_spread(values(done, "forward"), "", 1),
            with_spread(values(done, "backward"), "", 1),
            f"{statistics.fmean(values(done, 'seconds')):.2f}",
            *papers,
        )


HEAD = (
    "augmentation", "parameters", "test accuracy", "NFE forward", "NFE backward",
    "seconds per step", "accuracy (paper)", "NFE (paper)", "parameters (paper)",
)  # fmt: skip
EXPLANATION = (
    "Means and standard deviations over seeds. NFE is the mean over all training steps of the "
    "calls of the field: forward every stage of every step, rejected ones too, and the trial "
    "call that finds the first step length; backward the calls of the adjoint equation and of its "
    "quadrature, none with `Backprop()`. The columns marked as the paper's are from its table 1 "
    "(means of 10 runs, NFE forward), not measured here. `evaluations.png` shows NFE forward over "
    "the training; "
    "`runs.csv` has every run."
)


def measured(kind: str, seed: int, run: Run, result: Mapping[str, Any]) -> Trained:
    """What a run came to, from its result and its history."""
    history = read_history(run.folder)
    course = [line["train"]["evaluations"] for line in history]
    return Trained(
        kind,
        seed,
        result["parameters"],
        result["test"]["accuracy"],
        statistics.fmean(course),
        statistics.fmean(line["train"]["backward_evaluations"] for line in history),
        history[-1]["seconds"] / history[-1]["step"],
        course,
    )


def values(each: Sequence[Trained], name: str) -> list[float]:
    """One of the measures, of the runs that have it."""
    return [getattr(one, name) for one in each if getattr(one, name) is not None]


def with_spread(found: Sequence[float], unit: str, digits: int) -> str:
    """A mean, and the standard deviation where there are several."""
    mean = f"{statistics.fmean(found):.{digits}f}"
    if len(found) < 2:
        return f"{mean}{unit}"
    return f"{mean} ± {statistics.stdev(found):.{digits}f}{unit}"


def verdicts(runs: Mapping[str, Sequence[Trained]]) -> list[str]:
    """Whether the paper's order is found here, from the means."""
    accuracy = {k: statistics.fmean(v) for k in runs if (v := values(runs[k], "accuracy"))}
    forward = {k: statistics.fmean(v) for k in runs if (v := values(runs[k], "forward"))}
    if accuracy.keys() != KINDS.keys():
        missing = ", ".join(KINDS[kind] for kind in KINDS if kind not in accuracy)
        return [f"The order cannot be compared: no training of {missing} came to an end."]
    better = min(accuracy[k] for k in RICH) > accuracy["zero"]
    room = accuracy["zero"] > accuracy["vanilla"]
    cheaper = max(forward[k] for k in RICH) < min(forward[k] for k in POOR)
    by_accuracy = sorted(KINDS, key=lambda k: -accuracy[k])
    by_cost = sorted(KINDS, key=lambda k: forward[k])
    return [
        "The paper finds input layer and second order above 0-augmentation, and that above the "
        f"vanilla model: this {'holds' if better and room else 'does not hold'} here, where "
        f"accuracies are {listed(by_accuracy, accuracy, percent)}. "
        f"Input layer and second order are {'both' if better else 'not both'} above "
        f"0-augmentation, and 0-augmentation is {'' if room else 'not '}above vanilla."
        + noise(runs),
        "The paper finds that input layer and second order need the fewest evaluations: this "
        f"{'holds' if cheaper else 'does not hold'} here, where they are "
        f"{listed(by_cost, forward, '{:.1f}'.format)} per step.",
    ]


def noise(runs: Mapping[str, Sequence[Trained]]) -> str:
    """How much of a difference the seeds alone make."""
    each = [values(runs[kind], "accuracy") for kind in KINDS]
    spreads = [statistics.stdev(found) for found in each if len(found) > 1]
    if not spreads:
        return ""
    return (
        f" Seeds alone change an accuracy by up to {100 * max(spreads):.2f} points (the largest "
        "of the standard deviations): smaller differences say little."
    )


def listed(kinds: Sequence[str], found: Mapping[str, float], shown: Any) -> str:
    """The kinds in this order, each with its number."""
    return ", ".join(f"{KINDS[kind]} {shown(found[kind])}" for kind in kinds)


def as_csv(runs: Mapping[str, Sequence[Trained]]) -> str:
    """Every run as a line."""
    names = ("kind", "seed", "parameters", "accuracy", "forward", "backward", "seconds")
    every = [one for each in runs.values() for one in each]
    return csv_text(names, ([getattr(one, name) for name in names] for one in every))


STUDIES = (
    Augmentations(
        "dissecting/table1-mnist",
        "Vanilla, 0-augmented, input-layer and second-order flows on MNIST",
        {
            "smoke": "seconds", "laptop": "half an hour of one core",
            "night": "six hours of one core, estimated",
            "full": "days; use a GPU",
        },
        mnist,
        48,
        {
            "vanilla": (96.8, 98, 21.4), "zero": (98.9, 71, 20.4),
            "input-layer": (99.1, 44, 20.7), "second-order": (99.2, 43, 20.0),
        },
    ),
    Augmentations(
        "dissecting/table1-cifar",
        "Vanilla, 0-augmented, input-layer and second-order flows on CIFAR-10",
        {
            "smoke": "seconds", "laptop": "an hour on two cores",
            "night": "about six hours on two cores, estimated",
            "full": "days; use a GPU",
        },
        cifar10,
        62,
        {
            "vanilla": (58.9, 93, 37.1), "zero": (70.8, 169, 35.0),
            "input-layer": (73.4, 65, 36.1), "second-order": (72.8, 59, 34.6),
        },
    ),
)  # fmt: skip
