"""What the commands on runs and models take, and do."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from torch import nn

import continua as ct
from continua.files import Exported
from continua.measure import Comparison
from continua.train import PartName, Progress, Watch, evaluate, half_bases, silent

from ._device import find_device, threads
from ._grid import Grid, Method
from ._inputs import InputOptions, model_and_input
from ._measure import Sweep
from ._model import TrustOptions, open_model, save_model
from ._parse import parse_basis, parse_solver
from ._recipe import Recipe, find
from ._run import Run
from ._setup import Scale
from ._sweep import run_sweep

#: endings of files that `export` does not write
FILES = (".safetensors", ".pt", ".pth", ".pt2", ".bin", ".ckpt", ".pb", ".txt")


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """How to run a recipe or a study."""

    scale: Scale = "laptop"
    """smoke: seconds, to see that it works; laptop: two cores; full: the paper's own setting."""

    seed: int = 0
    """Of the first weights, the order of the data and its augmentation."""

    run_dir: Path | None = None
    """Where to write, and go on with what was begun; by default runs/NAME-SCALE-SEED and
    the settings."""

    data: Path | None = None
    """The folder with the data; by default it is downloaded to the user's cache."""

    device: str = "auto"
    """auto, cpu, cuda, cuda:1, mps, ...; auto takes a GPU where there is one."""

    threads: int | None = None
    """Processor threads; all by default."""


@dataclass(frozen=True, kw_only=True)
class TrainOptions(RunOptions):
    """What to train."""

    recipe: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RECIPE")]
    """The name of a recipe, such as stateful/digits; `continua train list` lists them."""

    set: tuple[str, ...] = ()
    """Settings to change, as in --set epochs=5 learning_rate=0.05 'basis=Fourier(2)'."""


@dataclass(frozen=True)
class EvaluateOptions(TrustOptions):
    """What to measure."""

    model: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")]
    """A run folder, or the folder of a model made from one."""

    part: PartName = "test"
    """Of the data."""

    data: Path | None = None
    """The folder with the data, if it is not where the run found it."""

    batch_size: int = 500
    """Samples at a time."""

    device: str = "auto"
    """auto, cpu, cuda, ..."""


@dataclass(frozen=True)
class RefineOptions(TrustOptions):
    """What to refine."""

    model: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")]
    """A run folder, or the folder of a model."""

    out: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="OUT")]
    """Where to write the finer model."""

    factor: int = 2
    """How many times more basis functions and steps."""


@dataclass(frozen=True)
class CompressOptions(TrustOptions):
    """What to compress, and to what."""

    model: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")]
    """A run folder, or the folder of a model."""

    out: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="OUT")]
    """Where to write the smaller model."""

    basis: str | None = None
    """The new basis, as in 'PiecewiseConstant(4)'; by default each of the old ones halved."""

    state_basis: str | None = None
    """The new basis of the batch-norm statistics; by default the same."""

    solver: str | None = None
    """The new solver, as in 'RK4(steps=4)'; by default the old one."""

    steps: int | None = None
    """The new number of steps."""

    method: Method = "project"
    """How the new coefficients are found."""


@dataclass(frozen=True)
class SweepOptions(TrustOptions):
    """What to sweep over."""

    run: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """A run folder, or the folder of a model made from one."""

    bases: tuple[str, ...] = Grid.bases
    """Families to write the weights in."""

    sizes: tuple[int, ...] = ()
    """Numbers of basis functions; by default powers of two up to the model's own."""

    schemes: tuple[str, ...] = Grid.schemes
    """Solvers."""

    steps: tuple[int, ...] = ()
    """Their steps; by default powers of two up to twice the model's own."""

    methods: tuple[Method, ...] = Grid.methods
    """Of the change of basis."""

    product: bool = False
    """Measure every combination of sizes and solvers, not only those near the model's own."""

    part: PartName = "validation"
    """Of the data to measure on; choose a size there, and measure it on the test part once."""

    samples: int | None = None
    """The first so many samples of it; all by default."""

    batch: int = 128
    """Samples of the timing."""

    data: Path | None = None
    """The folder with the data, if it is not where the run found it."""

    out: Path | None = None
    """Where to write; by default the folder sweep in RUN."""

    threads: int | None = None
    """Processor threads; all by default."""


@dataclass(frozen=True)
class ExportOptions(TrustOptions):
    """What to export."""

    model: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")]
    """A run folder, or the folder of a model."""

    out: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="OUT")]
    """A file such as model.onnx, or a folder for safetensors."""

    format: Literal["auto", "safetensors", "onnx"] = "auto"
    """safetensors: a folder for continua.load; onnx: a file for any runtime; auto: as OUT ends."""

    shape: tuple[int, ...] = ()
    """For onnx, the shape of one input, as in 3 32 32; by default that of the model's own data."""


def run_train(
    options: TrainOptions, recipes: Mapping[str, Recipe], watch: Watch = silent
) -> tuple[Run, dict[str, Any]]:
    """Train a recipe, or go on with it; the run and its result."""
    find_device(options.device)
    run = find(options.recipe, recipes).run(
        options.scale,
        seed=options.seed,
        folder=options.run_dir,
        data_folder=options.data,
        settings=options.set,
    )
    with using(options.threads):
        return run, run.train(options.device, watch)[1]


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
    model, run = open_model(options.model, options.trust)
    fine = ct.refine(model, options.factor)
    save_model(fine, options.out, run, verb="refine", factor=options.factor)
    return ct.compare(model, fine)


def run_compress(options: CompressOptions) -> Comparison:
    """Write a smaller model."""
    check_apart(options.model, options.out)
    model, run = open_model(options.model, options.trust)
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
    small = ct.compress(
        model,
        None if options.basis is None else parse_basis(options.basis),
        steps=options.steps,
        solver=None if options.solver is None else parse_solver(options.solver),
        state_basis=None if options.state_basis is None else parse_basis(options.state_basis),
        method=options.method,
        per_block=halves,
    )
    how = {
        k: v for k, v in dataclasses.asdict(options).items() if k not in ("model", "out", "trust")
    }
    save_model(small, options.out, run, verb="compress", **how)
    return ct.compare(model, small)


def run_sweep_command(options: SweepOptions, watch: Watch = silent) -> Sweep:
    """Sweep over the sizes of a run's model."""
    model, origin = model_of_run(options.run, options.trust)
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
            batch=options.batch,
            folder=options.out,
            watch=watch,
        )


def run_export(options: ExportOptions) -> Path | Exported:
    """Write the model of a run by itself."""
    chosen = options.format
    if chosen == "auto":
        chosen = "onnx" if options.out.suffix.lower() == ".onnx" else "safetensors"
    if chosen == "onnx":
        model, x = model_and_input(
            InputOptions(options.model, options.shape, batch=2, trust=options.trust)
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
    save_model(model, options.out, run, verb="export", format=chosen)
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
    return run if folder is None else dataclasses.replace(run, data_folder=folder)


@contextmanager
def using(count: int | None) -> Iterator[None]:
    """Torch with this many threads, if a number is given."""
    if count is None:
        yield
        return
    if count < 1:
        raise ct.ArgumentError(f"threads is at least 1, not {count}")
    with threads(count):
        yield
