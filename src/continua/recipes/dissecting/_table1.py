"""How to augment the state of an image classifier (table 1)."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import continua as ct
from continua import plot
from continua.files import read_json, write_json, write_whole
from continua.measure import count_evaluations
from continua.train import Training, evaluate, read_history
from continua.transform import blocks_if_any

from .._image_setup import ImageSetup
from .._output import write_figure
from .._parse import parse_solver
from .._recipe import Recipe
from .._run import Run
from .._setup import Scale
from .._study import Circumstances, Study, table
from ._augmented import EXPLANATION, HEAD, KINDS, Trained, as_csv, values, verdicts, with_spread

SEEDS: dict[Scale, int] = {"smoke": 2, "laptop": 2, "night": 1, "full": 10}

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


#: A tenth of an epoch, in one cycle of ten times the paper's rate. Coarse steps will do, because
#: `Backprop` differentiates the very steps that were taken; the trained model is measured with
#: the paper's solver as well.
NIGHT = replace(
    PAPER, epochs=8, epoch_steps=48, batch_size=16, learning_rate=1e-2, schedule="one-cycle",
    warmup=1.2, milestones=(),
)  # fmt: skip
COARSE = "Dopri5(1e-2, 1e-2)"

#: the beginning of it, at the first rate, in small batches: on a processor a step of 64 images
#: takes four times as long as one of 16, and what counts early is the number of steps
LAPTOP = replace(PAPER, epochs=8, epoch_steps=16, batch_size=16, milestones=())
SMOKE = replace(
    FULL, data="digits", width=8, samples=64, held_out=64,
    training=replace(LAPTOP, epochs=2, epoch_steps=1),
)  # fmt: skip

TAKES: dict[Scale, str] = {
    "smoke": "seconds", "laptop": "two to five minutes each",
    "night": "an hour each, estimated", "full": "hours; use a GPU",
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
            FULL, gradient="Backprop()", solver=COARSE, held_out=2_000, training=NIGHT
        ),
        "full": FULL,
    },
    TAKES | {"night": "one to five minutes of one core each"},
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
        runs: dict[str, list[Trained]] = {kind: [] for kind in KINDS}
        for seed in range(here.seed, here.seed + SEEDS[here.scale]):
            for kind in KINDS:  # every kind once before the next seed
                runs[kind].append(self._trained(replace(here, seed=seed), kind))
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
        final, fine = with_papers_solver(run)
        return replace(measured(kind, here.seed, run, result), final=final, fine=fine)

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
        seeds = SEEDS[here.scale]
        shorter = "" if here.scale == "full" else (
            f" The paper trains {PAPER.epochs} epochs of all images in batches of "
            f"{PAPER.batch_size}, with {SEEDS['full']} seeds: accuracies here are of a much "
            "shorter training, and only their order can be compared."
        )  # fmt: skip
        return (
            f"{setup['data']}: {images}, {course.epochs} epochs{steps}, batches of "
            f"{course.batch_size}, no data augmentation, AdamW with rate "
            f"{course.learning_rate:g} ({course.schedule} schedule) and weight decay "
            f"{course.weight_decay:g}, `{setup['solver']}` and {differentiated}; {seeds} "
            f"seed{'s' * (seeds > 1)}, the model of the last step, tested on {tested}.{shorter}"
        )

    def _row(self, kind: str, each: Sequence[Trained]) -> tuple[str, ...]:
        accuracy, evaluations, parameters = self.paper[kind]
        done = [one for one in each if one.accuracy is not None]
        papers = (f"{accuracy:.1f} %", f"{evaluations}", f"{parameters:.1f}K")
        if not done:
            return (KINDS[kind], "", "diverged", "", "", "", "", "", *papers)
        return (
            KINDS[kind] + ("" if len(done) == len(each) else f" ({len(done)} of {len(each)} runs)"),
            f"{done[0].parameters:,}",
            with_spread([100 * v for v in values(done, "accuracy")], " %", 2),
            with_spread([100 * v for v in values(done, "fine")], " %", 2),
            with_spread(values(done, "forward"), "", 1),
            with_spread(values(done, "backward"), "", 1),
            with_spread(values(done, "final"), "", 1),
            f"{statistics.fmean(values(done, 'seconds')):.2f}",
            *papers,
        )


def with_papers_solver(run: Run) -> tuple[float, float]:
    """Evaluations and test accuracy of the trained model; measured once per run."""
    path = run.folder / "papers_solver.json"
    if not path.exists():
        task, model = run.load()[1], run.model()
        for block in blocks_if_any(model).values():
            block.solver = parse_solver(FULL.solver)
        with count_evaluations(model) as count:
            found = evaluate(model, task, "test", batch_size=PAPER.batch_size)
        final = count.forward / count.solves
        write_json(path, {"evaluations": final, "accuracy": found["accuracy"]})
    facts = read_json(path)
    return facts["evaluations"], facts["accuracy"]


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


STUDIES = (
    Augmentations(
        "dissecting/table1-mnist",
        "Vanilla, 0-augmented, input-layer and second-order flows on MNIST",
        {
            "smoke": "seconds", "laptop": "half an hour of one core",
            "night": "a quarter of an hour of one core",
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
            "night": "about three hours on two cores, estimated",
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
