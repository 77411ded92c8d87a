"""Tagging sentences: the continuous transformer and its baselines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from continua.train import evaluate

from .._grid import Grid
from .._setup import Scale
from .._study import Circumstances, Study, minutes, percent, table
from .._sweep import run_sweep
from ._compression import trials_table
from ._sentences import TAGGERS

#: the paper's numbers of basis functions, where the model has as many
SIZES = (1, 2, 3, 4, 8, 16, 24, 32, 48, 64)


@dataclass(frozen=True)
class Tagging(Study):
    """Three taggers on one treebank, and the continuous one in every size."""

    treebank: str = "ewt"

    def perform(self, here: Circumstances) -> tuple[list[str], dict[str, Any]]:
        recipes = {recipe.name.removeprefix("stateful/"): recipe for recipe in TAGGERS}
        rows: list[tuple[str, ...]] = []
        facts: dict[str, Any] = {}
        for suffix, label in (
            ("", "continuous transformer"),
            ("-transformer", "discrete transformer"),
            ("-linear", "linear, word by word"),
        ):
            name = f"{self.treebank}{suffix}"
            run, result = here.train(recipes[name], name)
            _, task = run.load()
            dev = evaluate(run.model(), task, "validation", batch_size=100)
            facts[name] = result | {"dev": dev}
            rows.append(
                (
                    label,
                    f"{result['parameters']:,}",
                    percent(dev["accuracy"]),
                    percent(result["test"]["accuracy"]),
                    minutes(result["seconds"]),
                )
            )
        run = recipes[self.treebank].run(
            here.scale, seed=here.seed, folder=here.folder / self.treebank, data_folder=here.data
        )
        size = _functions(run)
        grid = Grid(
            bases=("PiecewiseConstant", "PiecewiseLinear", "DiscontinuousLinear"),
            sizes=tuple(k for k in SIZES if k <= size),
            schemes=("Euler",),
            steps=tuple(n for n in (8, 16, 32, 64) if n <= size) or (size,),
            methods=("project",),
        )
        sweep = run_sweep(run, grid, part="validation", batch=32, rounds=3, watch=here.watch)
        facts["trials"] = [vars(t) for t in (sweep.source, *sweep.trials)]
        return [
            "XPOS accuracy, every word counted:",
            table(("model", "parameters", "dev", "test", "training"), rows),
            f"The continuous tagger in other sizes, without retraining, on "
            f"{sweep.samples:,} sentences of the dev part:",
            trials_table(sweep),
            *sweep.sentences.values(),
        ], facts


def _functions(run: Any) -> int:
    from continua.train import functions

    size = functions(run.model())
    assert size is not None
    return size


@dataclass(frozen=True)
class EqualTagging(Study):
    """The continuous transformer and a discrete one with as many layers and parameters."""

    treebank: str = "ewt"

    def perform(self, here: Circumstances) -> tuple[list[str], dict[str, Any]]:
        recipes = {recipe.name.removeprefix("stateful/"): recipe for recipe in TAGGERS}
        rows: list[tuple[str, ...]] = []
        facts: dict[str, Any] = {}
        for suffix, label, settings in (
            ("", "continuous, 4 functions and steps", (REFINED[here.scale],)),
            ("-transformer", "discrete, 4 layers", ()),
        ):
            name = f"{self.treebank}{suffix}"
            run, result = here.train(recipes[name], name, [*settings, "precision=bf16"])
            _, task = run.load()
            dev = evaluate(run.model(), task, "validation", batch_size=100)
            facts[name] = result | {"dev": dev}
            parts = (dev["accuracy"], result["test"]["accuracy"])
            rows.append((label, f"{result['parameters']:,}", *map(percent, parts)))
        return [
            "XPOS accuracy, every word counted; the continuous one is refined 1, 2, 4 while "
            "training, both are trained in bfloat16:",
            table(("model", "parameters", "dev", "test"), rows),
        ], facts


#: to 4 functions and steps, as the discrete transformer has layers
REFINED: dict[Scale, str] = {
    "smoke": "refine_epochs=(1, 2)", "laptop": "refine_epochs=(1, 2)",
    "full": "refine_epochs=(2, 4)",
}  # fmt: skip
TREEBANKS = (("ewt", "UD English EWT"), ("gum", "UD English GUM"))

STUDIES: tuple[Study, ...] = tuple(
    Tagging(
        f"stateful/tagging-{short}",
        f"Tagging {name}: the continuous transformer, its baselines, and every size",
        {
            "smoke": "a minute and a half",
            "laptop": "an hour on two cores",
            "full": "the paper's 50,000 steps; use a GPU",
        },
        short,
    )
    for short, name in TREEBANKS
) + tuple(
    EqualTagging(
        f"stateful/tagging-equal-{short}",
        f"Tagging {name}: continuous and discrete, with equal depth and parameters",
        {
            "smoke": "seconds",
            "laptop": "five minutes of one core",
            "full": "the paper's 50,000 steps; use a GPU",
        },
        short,
    )
    for short, name in TREEBANKS
)
