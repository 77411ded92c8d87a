"""Recipes by name."""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import continua as ct

from ._parse import nearest
from ._run import Run
from ._setup import Scale, Setup


@dataclass(frozen=True)
class Recipe:
    """A training run at several scales.

    Attributes:
        name: such as stateful/digits.
        about: one line.
        scales: the setup of each; `full` is the paper's own.
        takes: how long each takes, and on what.
    """

    name: str
    about: str
    scales: Mapping[Scale, Setup]
    takes: Mapping[Scale, str]

    def run(
        self,
        scale: Scale = "laptop",
        *,
        seed: int = 0,
        folder: Path | None = None,
        data_folder: Path | None = None,
        settings: tuple[str, ...] = (),
    ) -> Run:
        """A run of this recipe; it begins with `Run.train`.

        Args:
            scale: smoke, laptop, night or full.
            seed: of weights, order and augmentation.
            folder: of the run; runs/NAME-SCALE-SEED by default, with a checksum of the
                settings behind it.
            data_folder: where the data lies; None for the user's cache.
            settings: changes of the form name=value.
        """
        if scale not in self.scales:
            raise ct.ArgumentError(
                f"{self.name} has no scale {scale!r}; it has {', '.join(self.scales)}"
            )
        setup = self.scales[scale]
        setup = replace(setup, training=replace(setup.training, seed=seed)).changed(settings)
        place = folder or Path("runs") / _folder_name(self.name, scale, seed, settings)
        return Run(place, self.name, scale, setup, data_folder)


def _folder_name(name: str, scale: str, seed: int, settings: Sequence[str]) -> str:
    """The name of a run's folder, with a checksum of the settings; run.json tells them."""
    plain = re.sub(r"[^\w.-]+", "_", name.replace("/", "-").replace(".py:", "-"))
    checksum = [f"{zlib.crc32(' '.join(sorted(settings)).encode()):08x}"] if settings else []
    return "-".join((plain, scale, str(seed), *checksum))


def find(name: str, recipes: Mapping[str, Recipe]) -> Recipe:
    """The recipe of this name."""
    if name not in recipes:
        raise nearest(name, recipes, "recipe")
    return recipes[name]
