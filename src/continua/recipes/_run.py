"""A run: the folder of one training, from the first step to the figures."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from torch import nn

import continua as ct
from continua import data, plot
from continua.files import read_json, write_json, write_whole
from continua.train import (
    LOCK,
    Checkpoints,
    Outcome,
    Progress,
    Task,
    Watch,
    evaluate,
    fit,
    held_alone,
    load_checkpoint,
    make_folder,
    read_history,
    silent,
)

from ._output import write_figure
from ._setup import Setup, setup_from_config

FORMAT = 1
RUN, ENVIRONMENT, RESULT = "run.json", "environment.json", "result.json"
README = "README.txt"
#: what a result has
RESULTS = {
    "recipe", "scale", "parameters", "epochs", "steps", "seconds", "validation", "test",
    "test_samples",
}  # fmt: skip
EXPLANATION = """A training run of continua.

run.json          the recipe, its scale and every setting
environment.json  versions, processor, threads, date
metrics.jsonl     one line per epoch
lock              held by the process that trains
checkpoints/      the last ones and the best; index.json says which
result.json       the test measures, once the training has ended
figures/          the course of the training
sweep/            the model in other sizes, once `continua sweep` has run

Train on: continua train {recipe} --run-dir FOLDER
Look at:  continua evaluate FOLDER, continua sweep FOLDER, continua compress FOLDER OUT
"""


@dataclass(frozen=True)
class Run:
    """A training run and its folder.

    Attributes:
        folder: where it is.
        recipe: its name.
        scale: smoke, laptop, night or full.
        setup: model, data and course.
        data_folder: where the data was read from; None for the user's cache.
    """

    folder: Path
    recipe: str
    scale: str
    setup: Setup
    data_folder: Path | None

    @classmethod
    def open(cls, folder: Path) -> Run:
        """The run in a folder."""
        if not (folder / RUN).exists():
            raise ct.FileError(f"{folder} is no run folder: it has no {RUN}")
        return cls.from_config(folder, read_json(folder / RUN), folder / RUN)

    @classmethod
    def from_config(cls, folder: Path, found: dict[str, Any], path: Path) -> Run:
        """The run that a file describes."""
        try:
            if found["format"] != FORMAT:
                raise ct.FileError(
                    f"{path} has format {found['format']!r}, and this version of continua reads "
                    f"{FORMAT}"
                )
            where = found["data_folder"]
            return cls(
                folder,
                found["recipe"],
                found["scale"],
                setup_from_config(found["setup"]),
                None if where is None else Path(where),
            )
        except KeyError as error:
            raise ct.FileError(f"{path} does not describe a run: it has no {error}") from error
        except (TypeError, ct.ArgumentError) as error:
            raise ct.FileError(f"{path} does not describe a run: {error}") from error

    def config(self) -> dict[str, Any]:
        """What `run.json` holds."""
        return {
            "format": FORMAT,
            "recipe": self.recipe,
            "scale": self.scale,
            # absolute, for who evaluates it from another folder
            "data_folder": None if self.data_folder is None else str(self.data_folder.absolute()),
            "setup": self.setup.config(),
        }

    def check(self) -> None:
        """Make sure that the folder is empty or of this very run."""
        if (self.folder / RUN).exists():
            other = Run.open(self.folder)
            if (other.recipe, other.setup) != (self.recipe, self.setup):
                what = f", not {self.recipe}"
                if other.recipe == self.recipe:
                    what = _difference(other.config()["setup"], self.config()["setup"])
                raise ct.FileError(
                    f"{self.folder} holds another run, {other.recipe}{what}; "
                    "choose another folder with --run-dir, or give the same settings to go on"
                )
            return
        # A run that was killed at its very beginning may have left a file half written.
        there = [path.name for path in self.folder.iterdir()]
        if any(name != LOCK and not name.startswith(f".{RUN}-") for name in there):
            raise ct.FileError(
                f"{self.folder} is not empty and holds no run; choose another with --run-dir"
            )

    def begin(self, dataset: data.Dataset) -> None:
        """Write what the folder holds, once it is sure that there is such a model."""
        if not (self.folder / RUN).exists():
            with torch.random.fork_rng(devices=[]):
                self.setup.make(dataset)
            write_json(self.folder / RUN, self.config())
        if not (self.folder / ENVIRONMENT).exists():
            write_json(self.folder / ENVIRONMENT, environment())
        if not (self.folder / README).exists():
            write_whole(self.folder / README, EXPLANATION.format(recipe=self.recipe).encode())

    def load(self, watch: Watch = silent) -> tuple[data.Dataset, Task]:
        """The data and the task."""

        def progress(name: str, done: int, total: int) -> None:
            watch(Progress(f"getting {name}", done, max(total, 1)))

        dataset = self.setup.dataset(self.data_folder, progress)
        return dataset, self.setup.task(dataset)

    def train(
        self, device: str = "auto", watch: Watch = silent, log: Any = None
    ) -> tuple[Outcome, dict[str, Any]]:
        """Train, or go on; then measure the chosen model on the test part, once."""
        with held_alone(self.folder):
            self.check()
            watch(Progress("reading", 0, 1, self.setup.config().get("data", self.recipe)))
            dataset, task = self.load(watch)
            self.begin(dataset)
            watch(Progress("reading", 1, 1, dataset.name))
            return self._trained(dataset, task, device, watch, log)

    def _trained(
        self, dataset: data.Dataset, task: Task, device: str, watch: Watch, log: Any
    ) -> tuple[Outcome, dict[str, Any]]:
        setup = self.setup
        if (self.folder / RESULT).exists() and Checkpoints(self.folder).best() is None:
            raise ct.FileError(
                f"{self.folder} has a {RESULT} but no checkpoint to go on from; remove {RESULT} to "
                "train again, or choose another folder with --run-dir"
            )
        outcome = fit(
            lambda: setup.make(dataset),
            task,
            setup.training,
            self.folder,
            device=device,
            channels_last=setup.channels_last,
            watch=watch,
            log=log,
        )
        if (self.folder / RESULT).exists():
            return outcome, self.result()
        result = {
            "recipe": self.recipe,
            "scale": self.scale,
            "parameters": sum(p.numel() for p in outcome.model.parameters()),
            "epochs": outcome.position.epoch,
            "steps": outcome.position.step,
            "seconds": round(outcome.position.seconds, 1),
            "validation": outcome.position.best,
            "test": evaluate(plain(outcome.model), task, "test", watch=watch),
            "test_samples": task.size("test"),
        }
        if isinstance(outcome.model, ct.Elastic):
            result["sizes"] = _sizes(outcome.model, task, watch)
        self._draw()
        write_json(self.folder / RESULT, result)
        return outcome, result

    def _draw(self) -> None:
        """The course of the training, as figures/course.png."""
        history = read_history(self.folder)
        if history:
            make_folder(self.folder / "figures")
            write_figure(self.folder / "figures" / "course.png", plot.course(history))

    def result(self) -> dict[str, Any]:
        """What `result.json` holds."""
        path = self.folder / RESULT
        found = read_json(path)
        if not found.keys() >= RESULTS:
            raise ct.FileError(f"{path} is not the result of a run; remove it to measure again")
        return found

    def model(self, trust: Sequence[str] = ()) -> nn.Module:
        """The best model so far, in evaluation mode.

        Args:
            trust: as in `continua.load`.
        """
        best = Checkpoints(self.folder).best()
        if best is None:
            raise ct.FileError(f"{self.folder} has no checkpoint yet: train it first")
        self.setup.check_known()
        return self.laid_out(plain(load_checkpoint(best, trust=trust)))

    def laid_out(self, model: nn.Module) -> nn.Module:
        """The model in the memory layout in which it was trained, where it is fastest."""
        if self.setup.channels_last:
            return model.to(memory_format=torch.channels_last)  # type: ignore[no-any-return,call-overload]
        return model


def plain(model: nn.Module) -> nn.Module:
    """The full size of an elastic model; any other model itself."""
    return model.model if isinstance(model, ct.Elastic) else model


def _sizes(model: ct.Elastic, task: Task, watch: Watch) -> dict[str, Any]:
    """What each size of an elastic model has, and its measures on the test part."""
    found = {}
    for size in model.sizes:
        small = model.at(size)
        found[str(size)] = {
            "parameters": sum(p.numel() for p in small.parameters()),
            "test": evaluate(small, task, "test", watch=watch),
        }
    return found


def environment() -> dict[str, Any]:
    """What the numbers of a run depend on besides its settings."""
    return {
        "continua": ct.__version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "processors": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "cuda": torch.version.cuda,
        "date": datetime.now(UTC).date().isoformat(),
    }


def _difference(old: dict[str, Any], new: dict[str, Any]) -> str:
    """The first setting in which two setups differ, in words."""
    flat_old = {**old, **old["training"]}
    flat_new = {**new, **new["training"]}
    for name, value in flat_new.items():
        if name != "training" and flat_old.get(name) != value:
            return f" with {name}={flat_old.get(name)!r} where this one has {value!r}"
    return ""
