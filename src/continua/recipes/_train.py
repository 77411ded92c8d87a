"""The command `train`."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

import continua as ct
from continua.train import TrackerName, Watch, silent

from ._device import find_device, using
from ._own import OPENED, OwnSetup, open_recipe
from ._recipe import Recipe, find
from ._run import Run
from ._setup import Scale, Setup


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """How to run a recipe or a study."""

    scale: Scale = "laptop"
    """smoke: seconds; laptop: for two cores; night: up to 8 hours; full: as in the paper.
    Recipes of your own have the scale laptop alone."""

    seed: int = 0
    """Seed of the initial weights, the data order and the augmentation."""

    run_dir: Path | None = None
    """The folder to write to or to resume; runs/NAME-SCALE-SEED by default, and a checksum of
    the settings if --set changes some."""

    data: Path | None = None
    """The folder with the data; by default it is downloaded to a cache."""

    device: str = "auto"
    """auto, cpu, cuda, cuda:1, mps, ...; auto uses a GPU if there is one."""

    threads: int | None = None
    """CPU threads; all by default."""


@dataclass(frozen=True, kw_only=True)
class TrainOptions(RunOptions):
    """What to train."""

    recipe: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RECIPE")]
    """A name from `continua train list`, or a function in a file of yours: my_file.py:recipe."""

    set: tuple[str, ...] = ()
    """Settings to change, as in --set epochs=5 learning_rate=0.05 'basis=Fourier(2)'."""

    show: bool = False
    """Print every setting with its value and meaning, then stop."""

    log: TrackerName | None = None
    """Also send the metrics of every epoch to this tracker."""


@dataclass(frozen=True)
class Setting:
    """One setting of a run.

    Attributes:
        name: for `--set`.
        value: in this run.
        meaning: in a sentence.
    """

    name: str
    value: Any
    meaning: str


def run_train(
    options: TrainOptions, recipes: Mapping[str, Recipe], watch: Watch = silent
) -> tuple[Run, dict[str, Any]]:
    """Train a recipe, or go on with it; the run and its result."""
    find_device(options.device)
    run = the_run(options, recipes)
    with using(options.threads):
        return run, run.train(options.device, watch, options.log)[1]


def the_run(options: TrainOptions, recipes: Mapping[str, Recipe]) -> Run:
    """The run that the options name; nothing is trained yet."""
    own = ".py" in options.recipe
    recipe = open_recipe(options.recipe) if own else find(options.recipe, recipes)
    return recipe.run(
        options.scale,
        seed=options.seed,
        folder=options.run_dir,
        data_folder=check_data(options.data),
        settings=options.set,
    )


def check_data(folder: Path | None) -> Path | None:
    """The folder of `--data`, if it is one."""
    if folder is not None and not folder.expanduser().exists():
        raise ct.FileError(
            f"--data {folder}: there is no such folder; name the one that holds the data, or leave "
            "--data out to download it"
        )
    return folder


def settings_of(setup: Setup) -> list[Setting]:
    """Every setting of a run with its value and meaning."""
    found = []
    if isinstance(setup, OwnSetup):
        function = OPENED[setup.recipe]
        said = described(inspect.getdoc(function) or "", "Args:")
        for parameter in inspect.signature(function).parameters.values():
            value = setup.settings.get(parameter.name, parameter.default)
            found.append(Setting(parameter.name, value, said.get(parameter.name, "")))
    hidden = {"training", "recipe", "settings"}
    for holder in (setup, setup.training):
        meanings: dict[str, str] = {}
        for kind in reversed(type(holder).__mro__):
            meanings |= described(inspect.cleandoc(kind.__doc__ or ""), "Attributes:")
        for each in dataclasses.fields(holder):
            if each.name not in hidden:
                value = getattr(holder, each.name)
                found.append(Setting(each.name, value, meanings.get(each.name, "")))
    return found


def described(doc: str, section: str) -> dict[str, str]:
    r"""What a section of a docstring says of each name.

    Example:
        >>> described("A thing.\n\nArgs:\n    size: how\n        large.", "Args:")
        {'size': 'how large.'}
    """
    found: dict[str, str] = {}
    name = ""
    for line in doc.partition(f"{section}\n")[2].splitlines():
        if line and not line.startswith(" "):
            break
        if line.startswith("    ") and not line.startswith("     ") and ":" in line:
            name, _, said = line.strip().partition(": ")
            found[name] = said
        elif line.strip() and name:
            found[name] += f" {line.strip()}"
    return found
