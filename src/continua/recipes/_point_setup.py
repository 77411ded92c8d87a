"""Training runs on points of the plane."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from torch import nn

import continua as ct
from continua import models
from continua.data import Dataset, load
from continua.train import Classification, Task

from ._parse import parse_basis, parse_solver
from ._setup import Download, Setup, shortened


@dataclass(frozen=True)
class PointSetup(Setup):
    """The toy classifier, on points of the plane.

    Attributes:
        data: moons, circles, annuli or spirals.
        n: how many points.
        noise: their standard deviation.
        dim: of the state.
        basis: of the weights over depth.
        solver: of the block.
    """

    data: str = "circles"
    n: int = 15_000
    noise: float = 0.05
    dim: int = 3
    basis: str = "PiecewiseConstant(3)"
    solver: str = "RK4(steps=10)"

    def dataset(self, folder: Path | None, progress: Download = None) -> Dataset:
        points = load(self.data, seed=self.training.seed, n=self.n, noise=self.noise)
        return shortened(points, self.samples, self.held_out)

    def make(self, dataset: Dataset) -> nn.Module:
        return ct.build(
            models.continuous_classifier,
            dim=self.dim,
            basis=parse_basis(self.basis),
            solver=parse_solver(self.solver),
        )

    def task(self, dataset: Dataset) -> Task:
        return Classification(dataset)
