"""Recipes in a file of the user's: a function that gives a model, data and a training.

A run keeps the name of the function and its settings, never the file itself. To open the run
again, the user names the file again: nothing is executed because a folder says so.
"""

from __future__ import annotations

import importlib.util
import inspect
import json
import sys
import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, Self

import torch
from torch import nn

import continua as ct
from continua.files import allow
from continua.train import Samples, Task, Training, task_of

from ._parse import nearest
from ._recipe import Recipe
from ._settings import parsed
from ._setup import Download, Setup, shortened

#: the recipes that this process was given, by the name of file and function
OPENED: dict[str, Callable[..., Any]] = {}


class Experiment(NamedTuple):
    """What a function of the user's gives.

    Attributes:
        model: makes it, once the seed is set.
        data: for `continua.train.task_of`.
        training: the configuration of the loop.
    """

    model: Callable[[], nn.Module]
    data: Any
    training: Training


_CALLED: dict[tuple[str, str], Experiment] = {}


def open_recipe(text: str) -> Recipe:
    """The recipe in a file: `my_file.py:recipe`.

    The file is executed, as `python my_file.py` would. Its function takes settings that have
    defaults, and returns what makes the model, the data and a `Training`.

    Args:
        text: the path of a file and, after a colon, the name of a function; `recipe` by default.
    """
    path, _, name = text.rpartition(":") if ".py:" in text else (text, "", "recipe")
    function = getattr(_module(Path(path)), name, None)
    if not inspect.isfunction(function):
        raise ct.ArgumentError(f"{path} has no function {name!r} at its top level")
    for parameter in inspect.signature(function).parameters.values():
        if parameter.default is parameter.empty:
            raise ct.ArgumentError(
                f"{name} in {path} takes {parameter.name!r}, which has no default; give it one: "
                "--set changes it"
            )
    known = f"{Path(path).name}:{name}"
    OPENED[known] = function
    for key in [key for key in _CALLED if key[0] == known]:
        del _CALLED[key]
    about = (inspect.getdoc(function) or "a recipe of your own").partition("\n")[0].rstrip(".")
    setup = OwnSetup(training=called(known, {}).training, recipe=known)
    return Recipe(known, about, {"laptop": setup}, {"laptop": "as long as you make it"})


def _module(path: Path) -> Any:
    """A file as a module; what lies beside it can be imported by it."""
    if not path.is_file():
        raise ct.FileError(f"there is no file {path}; `continua new {path}` writes one")
    name = path.stem
    known = sys.modules.get(name)
    if known is not None and getattr(known, "__file__", None) != str(path.resolve()):
        name = f"own_{name}"  # such as a file that is called torch.py
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    spec = importlib.util.spec_from_file_location(name, path.resolve())
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (ImportError, SyntaxError) as error:
        raise ct.ArgumentError(f"{path} cannot be imported: {error}") from error
    return module


def called(recipe: str, settings: dict[str, Any]) -> Experiment:
    """What the function gives with these settings, once per process."""
    if recipe not in OPENED:
        raise ct.ArgumentError(
            f"this was trained by {recipe}, which has to be named again: --recipe {recipe}, or in "
            f"Python continua.recipes.open_recipe({recipe!r}) first"
        )
    key = (recipe, json.dumps(settings, sort_keys=True))
    if key not in _CALLED:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)  # data that is drawn here is the same in every process
            found = OPENED[recipe](**settings)
        if not isinstance(found, tuple) or len(found) != 3 or not callable(found[0]):
            raise ct.ArgumentError(
                f"{recipe} returns three things: a function that makes the model, the data and a "
                f"continua.train.Training, not {type(found).__name__}"
            )
        if not isinstance(found[2], Training):
            raise ct.ArgumentError(f"the third that {recipe} returns is not a Training")
        _CALLED[key] = Experiment(*found)
    return _CALLED[key]


def own_model(recipe: str, settings: dict[str, Any]) -> nn.Module:
    """The model of a recipe that was opened in this process."""
    made = called(recipe, settings).model()
    if not isinstance(made, nn.Module):
        raise ct.ArgumentError(f"{recipe} makes a {type(made).__name__}, not an nn.Module")
    return made


#: a file may name it: it calls nothing that was not opened in this process
allow("continua.recipes", {"own_model": own_model})


class OwnData(NamedTuple):
    """Data of a recipe that is no `Dataset`."""

    name: str
    given: Task


@dataclass(frozen=True)
class OwnSetup(Setup):
    """A recipe of the user's with its settings.

    Attributes:
        recipe: the name of file and function.
        settings: arguments of the function, besides its defaults.
    """

    recipe: str = ""
    settings: dict[str, Any] = field(default_factory=dict)

    def check_known(self) -> None:
        called(self.recipe, self.settings)

    def dataset(self, folder: Path | None, progress: Download = None) -> Any:
        data = called(self.recipe, self.settings).data
        if isinstance(data, ct.data.Dataset):
            return shortened(data, self.samples, self.held_out)
        given = task_of(data)
        if isinstance(given, Samples):
            given.shorten(self.samples, self.held_out)
        elif self.samples is not None or self.held_out is not None:
            raise ct.ArgumentError("a Task of your own says itself how many samples it has")
        return OwnData(self.recipe, given)

    def make(self, dataset: Any) -> nn.Module:
        return ct.build(own_model, recipe=self.recipe, settings=self.settings)

    def task(self, dataset: Any) -> Task:
        return dataset.given if isinstance(dataset, OwnData) else task_of(dataset)

    def changed(self, settings: Sequence[str]) -> Self:
        function = OPENED[self.recipe]
        parameters = inspect.signature(function).parameters
        own, rest = dict(self.settings), []
        for setting in settings:
            name, equals, text = setting.partition("=")
            name = name.strip().replace("-", "_")
            if not equals or name not in parameters:
                rest.append(setting)
                continue
            if name in typing.get_type_hints(function):
                own[name] = parsed(function, name, text)
            else:
                own[name] = parsed_like(parameters[name].default, name, text)
        own = json.loads(json.dumps(own))  # as the run folder gives them back
        training = replace(called(self.recipe, own).training, seed=self.training.seed)
        try:
            return super(OwnSetup, replace(self, settings=own, training=training)).changed(rest)
        except ct.ArgumentError as error:
            if "there is no setting" not in str(error):
                raise
            known = [*parameters, *Training.__annotations__, "samples", "held_out"]
            name = str(error).split("'")[1]
            raise nearest(name, known, "setting") from None


def parsed_like(default: Any, name: str, text: str) -> Any:
    """A text as a value of the type that a default has."""
    kind: type = dataclass(type("Given", (), {"__annotations__": {name: type(default)}}))
    return parsed(kind, name, text)
