"""The compression study: one trained model in many sizes, without retraining."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

import continua as ct
from continua import plot
from continua._values import known
from continua.models import Tagger, attention_maps
from continua.plot import Trial
from continua.solve import SOLVERS
from continua.train import (
    Classification,
    PartName,
    Progress,
    Task,
    Watch,
    evaluate,
    make_folder,
    silent,
    write_json,
    write_whole,
)
from continua.transform import blocks

from ._output import csv_text, write_figure
from ._parse import nearest
from ._run import Run, environment

Method = Literal["project", "interpolate"]
FOLDER = "sweep"
FIGURES = {
    "accuracy.png", "steps.png", "latency.png", "weights.png", "state.png", "attention.png",
}  # fmt: skip


@dataclass(frozen=True)
class Grid:
    """Which variants of a model to measure.

    Attributes:
        bases: families to write it in.
        sizes: numbers of basis functions; by default the powers of two below the model's own, and
            that.
        schemes: solvers to run it with.
        steps: their numbers; by default the powers of two up to twice the model's own.
        methods: of the change of basis.
        product: every combination, instead of sizes at the model's own solver, solvers at its
            own basis, and each size with as many steps.
    """

    bases: tuple[str, ...] = ("PiecewiseConstant", "PiecewiseLinear")
    sizes: tuple[int, ...] = ()
    schemes: tuple[str, ...] = ("Euler", "Midpoint", "RK4")
    steps: tuple[int, ...] = ()
    methods: tuple[Method, ...] = ("project", "interpolate")
    product: bool = False

    def __post_init__(self) -> None:
        for names, choices, what in (
            (self.bases, known(ct.Basis), "basis"),
            (self.schemes, SOLVERS, "solver"),
        ):
            for name in names:
                if name not in choices:
                    raise nearest(name, choices, what)
        for values, what in ((self.sizes, "sizes"), (self.steps, "steps")):
            for value in values:
                if value < 1:
                    raise ct.ArgumentError(f"{what} are whole numbers of at least 1, not {value}")


@dataclass(frozen=True)
class Sweep:
    """What a sweep found.

    Attributes:
        source: the trained model.
        trials: its variants.
        samples: that each was measured on.
        judgements: that an accuracy is made of: the words of sentences, the samples otherwise.
        part: of the data.
        batch: of the timing.
        sentences: one per figure, with the measured numbers.
        files: what was written, relative to the folder.
    """

    source: Trial
    trials: tuple[Trial, ...]
    samples: int
    judgements: int
    part: str
    batch: int
    sentences: dict[str, str] = field(default_factory=dict)
    files: tuple[str, ...] = ()


def run_sweep(
    run: Run,
    grid: Grid | None = None,
    *,
    model: nn.Module | None = None,
    part: PartName = "validation",
    limit: int | None = None,
    batch: int = 128,
    rounds: int = 5,
    folder: Path | None = None,
    watch: Watch = silent,
) -> Sweep:
    """Measure a run's model in many sizes; write a table, figures, and a sentence for each.

    Args:
        run: a training that has ended, or at least has a checkpoint.
        grid: which variants.
        model: what was made from its model, which is put in evaluation mode; that itself by
            default.
        part: of the data to measure on.
        limit: the first so many samples only.
        batch: samples of the timing.
        rounds: of the timing, of which the median counts; all variants in turn.
        folder: where to write; the run's own folder `sweep` by default.
        watch: called as it goes on.
    """
    model = (run.model() if model is None else model).eval()
    if not _has_blocks(model):
        raise ct.ArgumentError(f"the model of {run.folder} has no ODE block: nothing to sweep")
    dataset, task = run.load()
    if task.measure != "accuracy":
        raise ct.ArgumentError(
            f"a sweep compares accuracies, and {run.recipe} is measured by its {task.measure}; "
            "use continua compress and continua evaluate"
        )
    sweep, models = measure(
        model, task, grid or Grid(), part=part, limit=limit, batch=batch, rounds=rounds,
        channels_last=run.setup.channels_last, watch=watch,
    )  # fmt: skip
    place = folder or run.folder / FOLDER
    make_folder(place)
    return _written(sweep, models, place, run, dataset, watch)


def measure(
    model: nn.Module,
    task: Task,
    grid: Grid,
    *,
    part: PartName = "validation",
    limit: int | None = None,
    batch: int = 128,
    rounds: int = 5,
    channels_last: bool = False,
    watch: Watch = silent,
) -> tuple[Sweep, dict[Trial, nn.Module]]:
    """Every variant of a model, measured; and the models themselves."""
    for value, what in ((limit, "samples"), (batch, "batch")):
        if value is not None and value < 1:
            raise ct.ArgumentError(f"{what} is at least 1, not {value}")
    plans = list(variants(model, grid))
    samples = task.size(part) if limit is None else min(limit, task.size(part))
    found: dict[Trial, nn.Module] = {}
    for i, (key, basis, solver, method) in enumerate(plans):
        variant = model
        if key[4] != "source":
            variant = ct.compress(model, basis, solver=solver, method=method or "project")
            if channels_last:
                variant = variant.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        accuracy = evaluate(variant, task, part, limit=limit)[task.measure]
        trial = Trial(
            basis=key[0],
            size=key[1],
            scheme=key[2],
            steps=key[3],
            method=key[4],
            parameters=sum(p.numel() for p in variant.parameters()),
            accuracy=accuracy,
        )
        found[trial] = variant
        watch(Progress("measuring", i + 1, len(plans), f"{_told(trial)}: {100 * accuracy:.2f} %"))
    index = torch.arange(min(batch, task.size(part)))
    inputs = task.batch(part, index, None)[0]
    if channels_last and inputs.dim() == 4:
        inputs = inputs.contiguous(memory_format=torch.channels_last)
    timed = _timed(found, inputs, rounds, watch)
    (source, *trials) = timed
    judgements = task.judgements(part, samples)
    return Sweep(source, tuple(trials), samples, judgements, part, len(index)), timed


Plan = tuple[tuple[str, int, str, int, str], ct.Basis | None, ct.Solver | None, Method | None]


def variants(model: nn.Module, grid: Grid) -> Iterator[Plan]:
    """The model itself, then what the grid makes of it, each once."""
    block = next(iter(blocks(model).values()))
    basis = next(iter(block.expansion.weights.values()))
    solver = block.solver
    steps = solver.config().get("steps")
    if steps is None:
        raise ct.ArgumentError(
            f"the model's solver {solver!r} chooses its own steps; a sweep needs a fixed grid: "
            "continua compress RUN OUT --solver 'RK4(steps=8)' makes one"
        )
    family, size, scheme = type(basis).__name__, basis.size, type(solver).__name__
    yield (family, size, scheme, steps, "source"), None, None, None
    sizes = grid.sizes or tuple(sorted({*_powers(size), size}))
    counts = grid.steps or tuple(sorted({*_powers(2 * steps), steps}))
    wanted: list[tuple[str, int, str, int, Method]] = []
    written = itertools.product(grid.bases, sizes, grid.methods)
    if grid.product:
        wanted += [
            (b, k, s, n, m) for (b, k, m), s, n in itertools.product(written, grid.schemes, counts)
        ]
    else:
        wanted += [(b, k, scheme, steps, m) for b, k, m in written]
        wanted += [
            (family, size, s, n, "project") for s, n in itertools.product(grid.schemes, counts)
        ]
        wanted += [(family, k, scheme, k, "project") for k in sizes]
    seen = {(family, size, scheme, steps)}
    methods: set[tuple[Any, ...]] = set()
    for name, k, s, n, method in wanted:
        try:
            target = known(ct.Basis)[name].of_size(k)
        except ct.ArgumentError:
            continue  # a family that begins with more functions
        key = (name, target.size, s, n)
        if key in seen or (*key, method) in methods:
            continue  # the source itself, or a family that has no member of just this size
        methods.add((*key, method))
        unchanged = (name, target.size) == (family, size)
        yield (*key, method), None if unchanged else target, SOLVERS[s](steps=n), method  # type: ignore[call-arg]


def _powers(most: int) -> list[int]:
    return [2**i for i in range(most.bit_length()) if 2**i <= most]


def _has_blocks(model: nn.Module) -> bool:
    return any(isinstance(module, ct.ODEBlock) for module in model.modules())


def _told(trial: Trial) -> str:
    return f"{trial.basis}({trial.size}), {trial.scheme} x {trial.steps}, {trial.method}"


@torch.inference_mode()
def _timed(
    models: dict[Trial, nn.Module], inputs: Tensor, rounds: int, watch: Watch
) -> dict[Trial, nn.Module]:
    """The trials with their times: interpolation costs what projection costs, and is not timed."""
    wanted = [t for t in models if t.method != "interpolate"]
    times: dict[Trial, list[float]] = {trial: [] for trial in wanted}
    for i in range(rounds + 1):  # the first to warm up
        for trial in wanted:
            started = time.perf_counter()
            models[trial](inputs)
            times[trial].append(time.perf_counter() - started)
        watch(Progress("timing", i, rounds))
    out = {}
    for trial, model in models.items():
        value = 1000 * statistics.median(times[trial][1:]) if trial in times else None
        out[replace(trial, milliseconds=None if value is None else round(value, 3))] = model
    return out


# -- what is written ---------------------------------------------------------------------------

_COLUMNS = (
    "basis", "size", "scheme", "steps", "method", "parameters", "accuracy", "milliseconds",
)  # fmt: skip


def _written(
    sweep: Sweep,
    models: dict[Trial, nn.Module],
    folder: Path,
    run: Run,
    dataset: Any,
    watch: Watch,
) -> Sweep:
    source, trials = sweep.source, sweep.trials
    sized = [t for t in trials if (t.scheme, t.steps) == (source.scheme, source.steps)]
    stepped = [
        source,
        *(t for t in trials if (t.basis, t.size) == (source.basis, source.size)),
    ]
    timed = [t for t in trials if t.milliseconds is not None]
    title = f"trained with {source.scheme}, {source.steps} steps"
    figures: dict[str, plot.Figure] = {}
    sentences: dict[str, str] = {}
    if sized:
        figures["accuracy.png"] = plot.pareto(source, sized, samples=sweep.judgements)
        sentences["accuracy.png"] = plot.describe_pareto(source, sized)
    if len(stepped) > 1:
        figures["steps.png"] = plot.convergence({title: stepped}, samples=sweep.judgements)
        sentences["steps.png"] = plot.describe_convergence({title: stepped})
    if timed:
        figures["latency.png"] = plot.latency(source, timed, batch=sweep.batch)
        sentences["latency.png"] = plot.describe_latency(source, timed)
    for name, (figure, sentence) in _over_depth(source, sized, models).items():
        figures[name], sentences[name] = figure, sentence
    if isinstance(models[source], Tagger):
        figure, sentence = _attention(models[source], run, dataset)
        figures["attention.png"], sentences["attention.png"] = figure, sentence
    write_whole(folder / "trials.csv", _table([source, *trials]).encode())
    for i, (name, figure) in enumerate(figures.items()):
        write_figure(folder / name, figure)
        watch(Progress("drawing", i + 1, len(figures)))
    facts = {
        "run": run.recipe,
        "scale": run.scale,
        "model": _told(source),
        "part": sweep.part,
        "samples": sweep.samples,
        "timing": {"batch": sweep.batch, "statistic": "median"},
        "sentences": sentences,
        "environment": environment(),
    }
    for name in FIGURES - figures.keys():
        (folder / name).unlink(missing_ok=True)  # of an earlier sweep, of which it would tell
    write_json(folder / "sweep.json", facts)
    lines = [f"# {run.recipe}, {run.scale}: {sweep.samples} samples of the {sweep.part} part", ""]
    lines += [f"- `{name}`: {sentence}" for name, sentence in sentences.items()]
    write_whole(folder / "summary.md", ("\n".join(lines) + "\n").encode())
    files = ("trials.csv", "sweep.json", "summary.md", *figures)
    return replace(sweep, sentences=sentences, files=tuple(files))


def _table(trials: Sequence[Trial]) -> str:
    return csv_text(_COLUMNS, ([getattr(trial, name) for name in _COLUMNS] for trial in trials))


def _over_depth(
    source: Trial, sized: Sequence[Trial], models: dict[Trial, nn.Module]
) -> dict[str, tuple[plot.Figure, str]]:
    """Weights and state of the last block over depth, of the source and at half its size."""
    half = [t for t in sized if t.method == "project" and t.size == max(source.size // 2, 1)][:3]
    main = blocks(models[source])
    last = list(main)[-1]
    if not main[last].expansion.weights or source.size == 1:
        return {}
    label = f"{source.basis}({source.size}), trained"
    shown = {f"{t.basis}({t.size})": blocks(models[t])[last] for t in half}
    drawn = {"weights.png": ("weight", plot.weights(main[last], shown, label=label))}
    if main[last].expansion.state:
        drawn["state.png"] = ("state", plot.state(main[last], shown, label=label))
    changes = {f"{t.basis}({t.size})": ct.compare(models[source], models[t]).tensors for t in half}
    out = {}
    for name, (kind, figure) in drawn.items():
        told = []
        for basis, tensors in changes.items():
            errors = [change.error for change in tensors if change.kind == kind]
            told.append(
                f"{100 * statistics.mean(errors):.2g} % on average and {100 * max(errors):.2g} % "
                f"at most in {basis}"
            )
        what = "weights" if kind == "weight" else "batch-norm statistics"
        sentence = (
            f"Written at half the size, the {what} over depth change by {'; '.join(told)} "
            "(relative L2 norm per tensor)."
        )
        out[name] = (figure, sentence if told else f"The {what} over depth, as trained.")
    return out


def _attention(model: nn.Module, run: Run, dataset: Any) -> tuple[plot.Figure, str]:
    """The attention of one sentence of the validation part over depth."""
    task = run.setup.task(dataset)
    assert isinstance(task, Classification)
    lengths = (dataset.validation.inputs != 0).sum(1)
    chosen = int((lengths == 12).nonzero()[0]) if bool((lengths == 12).any()) else 0
    tokens = dataset.validation.inputs[chosen : chosen + 1, : int(lengths[chosen])]
    assert isinstance(model, Tagger)
    (block,) = blocks(model).values()
    start, end = block.span
    depths = [start + (end - start) * i / 5 for i in range(6)]
    maps = attention_maps(model, tokens, depths)[:, 0]  # [S, heads, T, T]
    words = [dataset.forms[int(t)] for t in tokens[0]]
    return (
        plot.attention(maps[:, 0], depths, words),
        plot.describe_attention(maps[:, 0], depths),
    )
