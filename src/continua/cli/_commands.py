"""The commands: each a dataclass whose fields are its options and whose docstring is its help.

Calling one runs it and gives the exit code. To add a command, add its class to `COMMANDS`. This
module needs the extra `recipes`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Protocol, Self

import tyro

from continua import recipes

from ._cache import cache
from ._demo import demo
from ._runs import (
    changed,
    data,
    evaluate,
    export,
    gradcheck,
    heal,
    memory,
    new,
    report,
    reproduce,
    sweep,
    train,
)


class Command(Protocol):
    """A command with its options."""

    def __call__(self) -> int:
        """Run it; the exit code."""


@dataclass(frozen=True)
class Json:
    json: bool = False
    """Print the result as one JSON object on stdout."""


@dataclass(frozen=True)
class OwnRecipe(Json):
    recipe: str | None = None
    """The recipe of your own that the model was trained with, as in my_file.py:recipe."""

    def opened(self) -> Self:
        """The command, once the user's file is read."""
        if self.recipe is not None:
            recipes.open_recipe(self.recipe)
        return self


@dataclass(frozen=True)
class Demo(Json, recipes.DemoOptions):
    """Train a digit classifier, compress it, train all sizes at once, and measure them."""

    def __call__(self) -> int:
        return demo(self, self.json)


@dataclass(frozen=True)
class New(Json, recipes.NewOptions):
    """Write an example file with a model, data and training, for you to change."""

    def __call__(self) -> int:
        return new(self, self.json)


@dataclass(frozen=True)
class Train(Json, recipes.TrainOptions):
    """Train a recipe; run the same command again to resume."""

    def __call__(self) -> int:
        return train(self, self.json)


@dataclass(frozen=True)
class Evaluate(OwnRecipe, recipes.EvaluateOptions):
    """Measure a trained, compressed or healed model on its data."""

    def __call__(self) -> int:
        return evaluate(self.opened(), self.json)


@dataclass(frozen=True)
class Refine(OwnRecipe, recipes.RefineOptions):
    """Write a model with more basis functions and steps, and the same weights over depth."""

    def __call__(self) -> int:
        return changed(recipes.run_refine(self.opened()), self.out, self.json, self.recipe)


@dataclass(frozen=True)
class Compress(OwnRecipe, recipes.CompressOptions):
    """Write a model with fewer basis functions or steps, without retraining."""

    def __call__(self) -> int:
        return changed(recipes.run_compress(self.opened()), self.out, self.json, self.recipe)


@dataclass(frozen=True)
class Heal(OwnRecipe, recipes.HealOptions):
    """Train a compressed model to match the larger one, without labels."""

    def __call__(self) -> int:
        return heal(self.opened(), self.json, self.recipe)


@dataclass(frozen=True)
class Sweep(OwnRecipe, recipes.SweepOptions):
    """Measure a trained model in many sizes; write a table, figures and report.html."""

    def __call__(self) -> int:
        return sweep(self.opened(), self.json)


@dataclass(frozen=True)
class Report:
    """Write the report.html of a sweep, a demo or a study again, and open it."""

    folder: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="FOLDER")]
    """A run with a sweep, or the folder of a sweep, a demo or a study."""

    open: bool = False
    """Open it in the browser."""

    json: bool = False
    """Print the result as one JSON object on stdout."""

    def __call__(self) -> int:
        return report(self.folder, self.open, self.json)


@dataclass(frozen=True)
class Export(OwnRecipe, recipes.ExportOptions):
    """Write a model as ONNX or safetensors, to use elsewhere."""

    def __call__(self) -> int:
        return export(self.opened(), self.json, self.recipe)


@dataclass(frozen=True)
class Reproduce(Json, recipes.ReproduceOptions):
    """Run the experiment behind a table or figure of a paper, and write a report."""

    def __call__(self) -> int:
        return reproduce(self, self.json)


@dataclass(frozen=True)
class Data(Json, recipes.DataOptions):
    """List the datasets, their sizes and folders; or download one."""

    def __call__(self) -> int:
        return data(self, self.json)


@dataclass(frozen=True)
class Gradcheck(OwnRecipe, recipes.GradcheckOptions):
    """Check every gradient method on the blocks of a saved model."""

    def __call__(self) -> int:
        return gradcheck(self.opened(), self.json)


@dataclass(frozen=True)
class Memory(OwnRecipe, recipes.MemoryOptions):
    """Measure the memory that training a saved model takes, for every gradient method."""

    def __call__(self) -> int:
        return memory(self.opened(), self.json)


@dataclass(frozen=True)
class Cache(Json):
    """Show where compiled steps are stored and how large they are; or delete them."""

    clear: bool = False
    """Delete them all; they are compiled again when needed."""

    def __call__(self) -> int:
        return cache(self.clear, self.json)


COMMANDS: dict[str, Callable[..., Command]] = {
    kind.__name__.lower(): kind
    for kind in (
        Demo, New, Train, Evaluate, Refine, Compress, Heal, Sweep, Report, Export, Reproduce,
        Data, Gradcheck, Memory, Cache,
    )
}  # fmt: skip
