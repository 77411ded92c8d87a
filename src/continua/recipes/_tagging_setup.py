"""Training runs of taggers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

import continua as ct
from continua import models
from continua.data import Dataset, load
from continua.train import Classification, Task

from ._parse import nearest, parse_basis, parse_solver
from ._setup import Download, Setup, shortened


@dataclass(frozen=True)
class TaggingSetup(Setup):
    """A tagger of sentences.

    Attributes:
        data: the name of the treebank.
        model: continuous_tagger, transformer_tagger or linear_tagger.
        width: of embeddings and layers.
        basis: of the weights over depth.
        solver: of the block.
        layers: of the discrete transformer.
        epsilon: the length of the block's span.
        max_length: tokens of a sentence, the rest is cut off.
        label_smoothing: the share of a target spread over all tags.
    """

    data: str = "ud-english-ewt"
    model: str = "continuous_tagger"
    width: int = 128
    basis: str = "PiecewiseConstant(1)"
    solver: str = "Euler(steps=1)"
    layers: int = 1
    epsilon: float = 1.0
    max_length: int = 102
    label_smoothing: float = 0.0

    def dataset(self, folder: Path | None, progress: Download = None) -> Dataset:
        return shortened(
            load(self.data, folder=folder, max_length=self.max_length, progress=progress),
            self.samples,
            self.held_out,
        )

    def make(self, dataset: Dataset) -> nn.Module:
        if self.model not in models.MODELS:
            raise nearest(self.model, models.MODELS, "model")
        arguments: dict[str, Any] = {
            "vocabulary": len(dataset.forms),
            "tags": dataset.classes,
            "width": self.width,
            "max_length": self.max_length,
        }
        factory = models.MODELS[self.model]
        if self.model == "linear_tagger":
            return ct.build(factory, **arguments)
        arguments["mlp"] = self.width
        if self.model == "transformer_tagger":
            return ct.build(factory, **arguments, layers=self.layers)
        return ct.build(
            factory,
            **arguments,
            basis=parse_basis(self.basis),
            solver=parse_solver(self.solver),
            epsilon=self.epsilon,
        )

    def task(self, dataset: Dataset) -> Task:
        return Classification(dataset, label_smoothing=self.label_smoothing, ignore=0, trim=True)
