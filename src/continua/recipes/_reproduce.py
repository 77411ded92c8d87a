"""The commands `reproduce` and `data`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from continua.data import Entry, catalogue, load
from continua.train import Progress, Watch, silent

from ._device import find_device, using
from ._study import Circumstances, Report, Study, study_named
from ._train import RunOptions, check_data


@dataclass(frozen=True, kw_only=True)
class ReproduceOptions(RunOptions):
    """Which study."""

    study: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="STUDY")]
    """A study, such as stateful/norms; `continua reproduce list` lists them all."""


@dataclass(frozen=True)
class DataOptions:
    """Which data."""

    name: Annotated[
        str | None, tyro.conf.Positional, tyro.conf.arg(metavar="[NAME]", help_behavior_hint="")
    ] = None
    """The dataset to download and check; without a name, list them all."""

    folder: Path | None = None
    """The folder of the data; $CONTINUA_DATA or the user's cache by default."""


def run_reproduce(
    options: ReproduceOptions, studies: Mapping[str, Study], watch: Watch = silent
) -> Report:
    """Run a study, or go on with it."""
    find_device(options.device)
    study = study_named(options.study, studies)
    name = f"{study.name.replace('/', '-')}-study-{options.scale}-{options.seed}"
    here = Circumstances(
        options.run_dir or Path("runs") / name,
        options.scale,
        options.seed,
        check_data(options.data),
        options.device,
        watch,
    )
    with using(options.threads):
        return study.run(here)


def run_data(options: DataOptions, watch: Watch = silent) -> list[Entry]:
    """The catalogue, or one entry of it after making sure that it is there and whole."""
    if options.name is None:
        return catalogue(options.folder)

    def progress(name: str, done: int, total: int) -> None:
        watch(Progress(f"getting {name}", done, max(total, 1)))

    load(options.name, folder=options.folder, progress=progress)
    return [entry for entry in catalogue(options.folder) if entry.name == options.name]
