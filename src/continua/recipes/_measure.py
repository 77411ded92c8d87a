"""Accuracy, size and latency of the variants of a model."""

from __future__ import annotations

import statistics
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn

import continua as ct
from continua.plot import Trial
from continua.train import PartName, Progress, Task, Watch, evaluate, silent

from ._grid import Grid, variants


@dataclass(frozen=True)
class Sweep:
    """The result of a sweep.

    Attributes:
        source: the trained model.
        trials: its variants.
        samples: how many each was measured on.
        judgements: the number of answers in an accuracy: words of sentences, otherwise samples.
        part: of the data.
        batch: of the timing.
        spread: of the times of one model, the interquartile range over the median.
        sentences: one per figure, with the measured numbers.
        files: what was written, relative to the folder.
    """

    source: Trial
    trials: tuple[Trial, ...]
    samples: int
    judgements: int
    part: str
    batch: int
    spread: float = 0.0
    sentences: dict[str, str] = field(default_factory=dict)
    files: tuple[str, ...] = ()


def measure(
    model: nn.Module,
    task: Task,
    grid: Grid,
    *,
    part: PartName = "validation",
    limit: int | None = None,
    batch: int = 128,
    rounds: int = 9,
    channels_last: bool = False,
    watch: Watch = silent,
) -> tuple[Sweep, dict[Trial, nn.Module]]:
    """Measure every variant of a model; the results, and the models."""
    for value, what in ((limit, "samples"), (batch, "batch")):
        if value is not None and value < 1:
            raise ct.ArgumentError(f"{what} is at least 1, not {value}")
    plans = list(variants(model, grid))
    samples = task.size(part) if limit is None else min(limit, task.size(part))
    found: dict[Trial, nn.Module] = {}
    for i, (key, basis, solver, method) in enumerate(plans):
        variant = model
        if key[4] != "source":
            with warnings.catch_warnings():  # of buckets that few steps never read: all are tried
                warnings.simplefilter("ignore", UserWarning)
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
        watch(
            Progress(
                "measuring", i + 1, len(plans), f"{describe_trial(trial)}: {100 * accuracy:.2f} %"
            )
        )
    index = torch.arange(min(batch, task.size(part)))
    inputs = task.inputs(task.batch(part, index, None))
    if channels_last and isinstance(inputs, Tensor) and inputs.dim() == 4:
        inputs = inputs.contiguous(memory_format=torch.channels_last)
    timed, spread = _timed(found, inputs, rounds, watch)
    (source, *trials) = timed
    judgements = task.judgements(part, samples)
    return Sweep(source, tuple(trials), samples, judgements, part, len(index), spread), timed


def describe_trial(trial: Trial) -> str:
    """A variant in a few words."""
    return f"{trial.basis}({trial.size}), {trial.scheme} x {trial.steps}, {trial.method}"


@torch.inference_mode()
def _timed(
    models: dict[Trial, nn.Module], inputs: Tensor | dict[str, Tensor], rounds: int, watch: Watch
) -> tuple[dict[Trial, nn.Module], float]:
    """The trials with their times, and how far the times of one model spread.

    Interpolation costs what projection costs, and is not timed.
    """
    wanted = [t for t in models if t.method != "interpolate"]
    times: dict[Trial, list[float]] = {trial: [] for trial in wanted}
    for i in range(rounds + 1):  # the first to warm up
        for trial in wanted:
            started = time.perf_counter()
            models[trial](**inputs) if isinstance(inputs, dict) else models[trial](inputs)
            times[trial].append(time.perf_counter() - started)
        watch(Progress("timing", i, rounds))
    out = {}
    for trial, model in models.items():
        value = 1000 * statistics.median(times[trial][1:]) if trial in times else None
        out[replace(trial, milliseconds=None if value is None else round(value, 3))] = model
    return out, statistics.median(_spread(each[1:]) for each in times.values())


def _spread(times: Sequence[float]) -> float:
    """The interquartile range over the median; 0 of a single time."""
    if len(times) < 2:
        return 0.0
    low, middle, high = statistics.quantiles(times, n=4, method="inclusive")
    return (high - low) / middle
