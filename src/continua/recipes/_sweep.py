"""The compression study: one trained model in many sizes, without retraining."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

import continua as ct
from continua import plot
from continua.files import write_json, write_whole
from continua.models import Tagger, attention_maps
from continua.plot import Trial
from continua.train import Classification, PartName, Progress, Task, Watch, make_folder, silent
from continua.transform import blocks

from ._grid import Grid
from ._measure import Sweep, describe_trial, measure
from ._output import csv_text, write_figure
from ._report_page import REPORT, write_report
from ._run import Run, environment

FOLDER = "sweep"
#: whose predictions the report shows
SAMPLES = 12
#: times of one model that spread further than this share are not compared
STEADY = 0.15
FIGURES = {
    "accuracy.png", "steps.png", "latency.png", "weights.png", "state.png", "attention.png",
}  # fmt: skip


def run_sweep(
    run: Run,
    grid: Grid | None = None,
    *,
    model: nn.Module | None = None,
    part: PartName = "validation",
    limit: int | None = None,
    batch: int = 128,
    rounds: int = 9,
    folder: Path | None = None,
    force: bool = True,
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
        force: whether to write over an earlier sweep.
        watch: called as it goes on.
    """
    place = folder or run.folder / FOLDER
    if (place / "trials.csv").exists() and not force:
        raise ct.FileError(f"{place} holds a sweep; --force overwrites it, --out writes elsewhere")
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
    make_folder(place)
    predictions = _predictions(sweep, models, task, part)
    return _written(sweep, models, place, run, dataset, predictions, watch)


def _has_blocks(model: nn.Module) -> bool:
    return any(isinstance(module, ct.ODEBlock) for module in model.modules())


_COLUMNS = (
    "basis", "size", "scheme", "steps", "method", "parameters", "accuracy", "milliseconds",
)  # fmt: skip


def _written(
    sweep: Sweep,
    models: dict[Trial, nn.Module],
    folder: Path,
    run: Run,
    dataset: Any,
    predictions: list[dict[str, Any]],
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
        sentences["latency.png"] = _speeds(sweep, timed)
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
        "folder": str(run.folder),
        "scale": run.scale,
        "model": describe_trial(source),
        "part": sweep.part,
        "samples": sweep.samples,
        "timing": {"batch": sweep.batch, "statistic": "median", "spread": sweep.spread},
        "sentences": sentences,
        "predictions": predictions,
        "environment": environment(),
        "settings": run.setup.config(),
    }
    for name in FIGURES - figures.keys():
        (folder / name).unlink(missing_ok=True)  # of an earlier sweep, of which it would tell
    write_json(folder / "sweep.json", facts)
    lines = [f"# {run.recipe}, {run.scale}: {sweep.samples} samples of the {sweep.part} part", ""]
    lines += [f"- `{name}`: {sentence}" for name, sentence in sentences.items()]
    write_whole(folder / "summary.md", ("\n".join(lines) + "\n").encode())
    write_report(folder)
    files = ("trials.csv", "sweep.json", "summary.md", REPORT, *figures)
    return replace(sweep, sentences=sentences, files=tuple(files))


def _speeds(sweep: Sweep, timed: Sequence[Trial]) -> str:
    """How fast the variants are, if the clock was steady enough to tell."""
    if sweep.spread <= STEADY:
        return plot.describe_latency(sweep.source, timed)
    return (
        f"The times of one model vary by {100 * sweep.spread:.0f} % (interquartile range over "
        "median): too much to compare speeds. Sweep again on a quiet machine."
    )


@torch.inference_mode()
def _predictions(
    sweep: Sweep, models: dict[Trial, nn.Module], task: Task, part: PartName
) -> list[dict[str, Any]]:
    """What the trained model, and those of its own solver and family, say of the first samples."""
    source = sweep.source
    smaller = [t for t in sweep.trials if _same_but_size(t, source)]
    shown = [source, *sorted(smaller, key=lambda trial: -trial.size)]
    batch = task.batch(part, torch.arange(min(SAMPLES, task.size(part))), None)
    given, targets = task.inputs(batch), batch[-1]
    if targets.dim() != 1:
        return []
    rows: list[dict[str, Any]] = [{"sample": i, "true": int(t)} for i, t in enumerate(targets)]
    for trial in shown:
        out = models[trial](**given) if isinstance(given, dict) else models[trial](given)
        scores = getattr(out, "logits", out)
        two = scores.shape[-1] == 1  # one logit, of class 1
        found = (scores.flatten() > 0).long() if two else scores.argmax(-1)
        for row, said in zip(rows, found.tolist(), strict=True):
            row[f"{trial.basis}({trial.size})"] = said
    return rows


def _same_but_size(trial: Trial, source: Trial) -> bool:
    own = (source.basis, source.scheme, source.steps, "project")
    return (trial.basis, trial.scheme, trial.steps, trial.method) == own


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
