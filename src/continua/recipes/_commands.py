"""What the commands on runs and models take, and do."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from torch import nn

import continua as ct
from continua.files import Exported
from continua.measure import Comparison
from continua.train import PartName, Progress, Watch, evaluate, silent

from ._device import find_device, using
from ._grid import Grid, Method
from ._inputs import InputOptions, model_and_input
from ._measure import Sweep
from ._model import TrustOptions, check_free, open_model, save_model
from ._run import Run
from ._sweep import run_sweep
from ._train import check_data

#: endings of files that `export` does not write
FILES = (".safetensors", ".pt", ".pth", ".pt2", ".bin", ".ckpt", ".pb", ".txt")


@dataclass(frozen=True)
class EvaluateOptions(TrustOptions):
    """What to measure."""

    model: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")]
    """A run folder, or the folder of a model that was made from one."""

    part: PartName = "test"
    """The part of the data to measure on."""

    data: Path | None = None
    """The folder with the data, if it has moved since the training."""

    batch_size: int = 500
    """Samples per batch."""

    device: str = "auto"
    """auto, cpu, cuda, cuda:1, mps, ..."""


@dataclass(frozen=True)
class RefineOptions(TrustOptions):
    """What to refine."""

    model: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")]
    """A run folder, or the folder of a saved model."""

    out: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="OUT")]
    """Where to write the finer model."""

    factor: int = 2
    """The factor by which basis functions and steps grow."""

    force: bool = False
    """Overwrite an existing model."""


@dataclass(frozen=True)
class SweepOptions(TrustOptions):
    """What to sweep over."""

    model: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")]
    """A run folder, or the folder of a model that was made from one."""

    bases: tuple[str, ...] = Grid.bases
    """Families of bases to try."""

    sizes: tuple[int, ...] = ()
    """Numbers of basis functions; by default powers of two up to the model's own."""

    schemes: tuple[str, ...] = Grid.schemes
    """Solvers to try."""

    steps: tuple[int, ...] = ()
    """Numbers of steps; by default powers of two up to twice the model's own."""

    methods: tuple[Method, ...] = Grid.methods
    """How to change the basis."""

    product: bool = False
    """Measure every combination of sizes and solvers, not only those near the model's own."""

    part: PartName = "validation"
    """The part of the data to measure on. Choose a size on it, then test that size once."""

    samples: int | None = None
    """Measure on this many samples; all by default."""

    batch_size: int = 128
    """The batch size for timing."""

    data: Path | None = None
    """The folder with the data, if it has moved since the training."""

    out: Path | None = None
    """The folder to write to; MODEL/sweep by default."""

    force: bool = False
    """Overwrite an existing sweep."""

    threads: int | None = None
    """CPU threads; all by default."""


@dataclass(frozen=True)
class ExportOptions(TrustOptions):
    """What to export."""

    model: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")]
    """A run folder, or the folder of a saved model."""

    out: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="OUT")]
    """A file such as model.onnx, or a folder for safetensors."""

    format: Literal["auto", "safetensors", "onnx"] = "auto"
    """safetensors: a folder for continua.load; onnx: one file; auto: onnx if OUT ends in .onnx."""

    shape: tuple[int, ...] = ()
    """For onnx: the shape of one input, such as 3 32 32; by default that of the data."""

    force: bool = False
    """Overwrite an existing model."""


def run_evaluate(options: EvaluateOptions, watch: Watch = silent) -> dict[str, Any]:
    """The measures of a model."""
    device = find_device(options.device)
    model, origin = model_of_run(options.model, options.trust)
    run = moved(origin, options.data)
    watch(Progress("reading", 0, 1))
    _, task = run.load()
    watch(Progress("reading", 1, 1))
    measures = evaluate(
        model.to(device), task, options.part, batch_size=options.batch_size, watch=watch
    )
    return {
        "recipe": run.recipe,
        "part": options.part,
        "samples": task.size(options.part),
        "parameters": sum(p.numel() for p in model.parameters()),
        **measures,
    }


def run_refine(options: RefineOptions) -> Comparison:
    """Write a finer model."""
    check_apart(options.model, options.out)
    check_free(options.out, options.force)
    model, run = open_model(options.model, options.trust)
    fine = ct.refine(model, options.factor)
    how = {"verb": "refine", "factor": options.factor}
    save_model(fine, options.out, run, options.force, **how)
    return ct.compare(model, fine)


def run_sweep_command(options: SweepOptions, watch: Watch = silent) -> Sweep:
    """Sweep over the sizes of a run's model."""
    model, origin = model_of_run(options.model, options.trust)
    run = moved(origin, options.data)
    grid = Grid(
        options.bases,
        options.sizes,
        options.schemes,
        options.steps,
        options.methods,
        options.product,
    )
    with using(options.threads):
        return run_sweep(
            run,
            grid,
            model=model,
            part=options.part,
            limit=options.samples,
            batch=options.batch_size,
            folder=options.out,
            force=options.force,
            watch=watch,
        )


def run_export(options: ExportOptions) -> Path | Exported:
    """Write the model of a run by itself."""
    chosen = options.format
    if chosen == "auto":
        suffix = options.out.suffix.lower()
        if suffix != ".onnx" and get_close_matches(suffix, [".onnx"]):
            raise ct.ArgumentError(
                f"{options.out} ends in {suffix}; write .onnx, or --format safetensors for a folder"
            )
        chosen = "onnx" if options.out.suffix.lower() == ".onnx" else "safetensors"
    if chosen == "onnx":
        if options.out.exists() and not options.force:
            raise ct.FileError(f"{options.out} exists; --force overwrites it")
        model, x = model_and_input(
            InputOptions(options.model, options.shape, batch_size=2, trust=options.trust)
        )
        free = {0: "batch"} if x.is_floating_point() else {0: "batch", 1: "length"}
        return ct.export(model, options.out, x, dynamic=free)
    if options.shape:
        raise ct.ArgumentError("safetensors needs no --shape; for ONNX give OUT the ending .onnx")
    if options.format == "auto" and options.out.suffix in FILES:
        raise ct.ArgumentError(
            f"{options.out} looks like a file; export writes an .onnx file or a folder for "
            "safetensors: --format safetensors makes a folder of this name"
        )
    check_apart(options.model, options.out)
    model, run = open_model(options.model, options.trust)
    save_model(model, options.out, run, options.force, verb="export", format=chosen)
    return options.out


def check_apart(source: Path, out: Path) -> None:
    """Refuse to write a model over the one that it is made from."""
    if source.exists() and out.exists() and source.samefile(out):
        raise ct.ArgumentError(f"{out} is the model itself; choose another folder for what is made")


def model_of_run(folder: Path, trust: Sequence[str] = ()) -> tuple[nn.Module, Run]:
    """The model in a folder, and the run that it comes from."""
    model, run = open_model(folder, trust)
    if run is None:
        raise ct.ArgumentError(
            f"{folder} does not say which data it belongs to; take a run folder, or a "
            "model that continua compress, refine or export made from one"
        )
    return model, run


def moved(run: Run, folder: Path | None) -> Run:
    """The run with its data in another folder."""
    return run if folder is None else dataclasses.replace(run, data_folder=check_data(folder))
