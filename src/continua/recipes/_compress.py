"""A smaller model, of bases that are given or of a size that is."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
import tyro
from torch import Tensor, nn

import continua as ct
from continua.measure import Comparison
from continua.train import half_bases

from ._commands import check_apart, model_of_run, moved
from ._model import TrustOptions, check_free, open_model, save_model
from ._parse import parse_basis, parse_solver
from ._run import Run

#: options that do not say how a model was made
APART = ("model", "out", "data", "trust", "force")
BATCH = 64

Method = Literal["project", "interpolate", "fit"]


@dataclass(frozen=True)
class CompressOptions(TrustOptions):
    """What to compress, and to what."""

    model: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")]
    """A run folder, or the folder of a saved model."""

    out: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="OUT")]
    """Where to write the smaller model."""

    basis: str | None = None
    """The new basis, such as 'PiecewiseConstant(4)'; half of the old one by default."""

    state_basis: str | None = None
    """The new basis of the batch-norm statistics; the same as --basis by default."""

    solver: str | None = None
    """The new solver, such as 'RK4(steps=4)'; the old one by default."""

    steps: int | None = None
    """The new number of steps; the old one by default."""

    method: Method = "project"
    """project and interpolate need no data; fit matches the outputs on training inputs."""

    budget: float | None = None
    """The share of parameters to keep, such as 0.5; training inputs decide what to cut."""

    samples: int = 512
    """For --budget and fit: use this many training inputs, without labels."""

    data: Path | None = None
    """For --budget and fit: the folder with the data, if it has moved since the training."""

    force: bool = False
    """Overwrite an existing model."""


def run_compress(options: CompressOptions) -> Comparison:
    """Write a smaller model."""
    check_apart(options.model, options.out)
    check_free(options.out, options.force)
    if options.budget is None and options.method != "fit":
        model, run = open_model(options.model, options.trust)
        inputs = None
    else:
        model, origin = model_of_run(options.model, options.trust)
        run = moved(origin, options.data)
        inputs = training_inputs(run, options.samples, BATCH)
    chosen = _chosen(options, model)
    small = ct.compress(model, **chosen, method=options.method, calibrate=inputs)
    left_out = APART if inputs is not None else (*APART, "budget", "samples")
    how = {k: v for k, v in dataclasses.asdict(options).items() if k not in left_out}
    save_model(small, options.out, run, options.force, verb="compress", **how)
    return ct.compare(model, small, None if inputs is None else inputs[0])


def _chosen(options: CompressOptions, model: nn.Module) -> dict[str, Any]:
    """What `compress` is to choose by: a budget, or bases, steps and solver."""
    if options.budget is not None:
        for name in ("basis", "state_basis", "solver", "steps"):
            if getattr(options, name) is not None:
                raise ct.ArgumentError(f"--budget chooses the {name}; give one of the two")
        return {"budget": options.budget}
    halves: dict[str, dict[str, Any]] = {}
    if options.basis is None and options.solver is None and options.steps is None:
        weights, states = half_bases(model)
        if not any(weights.values()):
            raise ct.ArgumentError(
                f"the model of {options.model} has no weights that vary with depth: nothing to "
                "compress"
            )
        halves = {name: {"basis": bases} for name, bases in weights.items()}
        if options.state_basis is None:
            for name, bases in states.items():
                halves[name]["state_basis"] = bases
    return {
        "basis": None if options.basis is None else parse_basis(options.basis),
        "steps": options.steps,
        "solver": None if options.solver is None else parse_solver(options.solver),
        "state_basis": None if options.state_basis is None else parse_basis(options.state_basis),
        "per_block": halves,
    }


def training_inputs(run: Run, samples: int, batch_size: int) -> list[Tensor]:
    """The first inputs of the training part of a run's data, in batches, augmented as in training.

    Weights fit augmented images: a CIFAR-10 network that is fitted to plain ones loses 0.7 points
    more (docs/results/elastic.md).
    """
    for name, value in (("samples", samples), ("batch_size", batch_size)):
        if value < 1:
            raise ct.ArgumentError(f"{name} is at least 1, not {value}")
    _, task = run.load()
    rows = torch.split(torch.arange(min(samples, task.size("train"))), batch_size)
    generator = torch.Generator().manual_seed(run.setup.training.seed)
    return [task.inputs(task.batch("train", some, generator)) for some in rows]
