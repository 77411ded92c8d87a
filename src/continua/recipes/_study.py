"""Studies: several runs, and what comes of comparing them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import continua as ct
from continua.files import write_json, write_whole
from continua.train import Progress, Watch, make_folder, silent

from ._parse import nearest
from ._recipe import Recipe
from ._report_page import write_report
from ._run import Run, environment
from ._setup import Scale


@dataclass(frozen=True)
class Report:
    """What a study found.

    Attributes:
        folder: where it was written.
        text: in Markdown.
        facts: every number, ready for JSON.
    """

    folder: Path
    text: str
    facts: dict[str, Any]


@dataclass(frozen=True)
class Circumstances:
    """Under which a study runs.

    Attributes:
        folder: for runs and report.
        scale: smoke, laptop, night or full.
        seed: of every run.
        data: the folder with the data; None for the user's cache.
        device: to train on.
        watch: called as it goes on.
    """

    folder: Path
    scale: Scale = "laptop"
    seed: int = 0
    data: Path | None = None
    device: str = "auto"
    watch: Watch = silent

    def train(
        self, recipe: Recipe, name: str, settings: Sequence[str] = ()
    ) -> tuple[Run, dict[str, Any]]:
        """Train a recipe in a folder of this name, unless that is done already."""
        run = recipe.run(
            self.scale,
            seed=self.seed,
            folder=self.folder / name,
            data_folder=self.data,
            settings=tuple(settings),
        )

        def watch(now: Progress) -> None:
            self.watch(replace(now, stage=f"{name}: {now.stage}"))

        return run, run.train(self.device, watch)[1]


@dataclass(frozen=True)
class Study(ABC):
    """The experiment behind a table or figure.

    Attributes:
        name: such as stateful/norms.
        about: one line.
        takes: how long each scale takes.
    """

    name: str
    about: str
    takes: Mapping[Scale, str] = field(default_factory=dict)

    @abstractmethod
    def perform(self, here: Circumstances) -> tuple[list[str], dict[str, Any]]:
        """Run it: the paragraphs of the report, and every number."""

    def run(self, here: Circumstances) -> Report:
        """Run it, and write the report."""
        if here.scale not in self.takes:
            raise ct.ArgumentError(
                f"{self.name} has no scale {here.scale!r}; it has {', '.join(self.takes)}"
            )
        make_folder(here.folder)
        paragraphs, facts = self.perform(here)
        facts = {
            "study": self.name, "scale": here.scale, "seed": here.seed,
            "environment": environment(), **facts,
        }  # fmt: skip
        surroundings = facts["environment"]
        head = [
            f"# {self.name}",
            f"{self.about}. Scale {here.scale}, seed {here.seed}; torch {surroundings['torch']}, "
            f"{surroundings['processors']} processors ({surroundings['machine']}), "
            f"{surroundings['date']}: `continua reproduce {self.name} --scale {here.scale} "
            f"--seed {here.seed}`.",
        ]
        text = "\n\n".join([*head, *paragraphs]) + "\n"
        write_json(here.folder / "report.json", facts)
        write_whole(here.folder / "report.md", text.encode())
        write_report(here.folder)
        return Report(here.folder, text, facts)


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table in Markdown."""
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    lines += [f"| {' | '.join(str(cell) for cell in row)} |" for row in rows]
    return "\n".join(lines)


def percent(share: float) -> str:
    """A share in percent."""
    return f"{100 * share:.2f} %"


def minutes(seconds: float) -> str:
    """A duration in words."""
    return f"{seconds / 60:.1f} min" if seconds >= 60 else f"{seconds:.0f} s"


def describe_result(result: Mapping[str, Any]) -> str:
    """What a training came to, in a sentence."""
    test, validation = result["test"], result["validation"]
    if "accuracy" not in test:
        measures = ", ".join(f"{name} {value:.4g}" for name, value in test.items())
        return (
            f"{result['recipe']} ({result['scale']}): {measures}, on {result['test_samples']:,} "
            f"samples of the test part; {result['parameters']:,} parameters, "
            f"{result['epochs']} epochs in {minutes(result['seconds'])}"
        )
    chosen = "" if validation is None else f", validation {percent(validation)}"
    return (
        f"{result['recipe']} ({result['scale']}): test accuracy {percent(test['accuracy'])} of "
        f"{result['test_samples']:,} samples{chosen}; {result['parameters']:,} parameters, "
        f"{result['epochs']} epochs in {minutes(result['seconds'])}"
    )


def study_named(name: str, studies: Mapping[str, Study]) -> Study:
    """The study of this name."""
    if name not in studies:
        raise nearest(name, studies, "study")
    return studies[name]
