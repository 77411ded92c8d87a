"""Train once, ship many sizes: the demonstration, on the digits of scikit-learn."""

from __future__ import annotations

import platform
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import continua as ct
from continua._values import whole_number
from continua.data import Split, digits
from continua.files import write_json
from continua.train import Progress

from ._demo_table import FIGURES, HALF, VARIANTS, Row, figures, table
from ._demo_training import (
    BATCH,
    LEARNING_RATE,
    LEVELS,
    SMOOTHING,
    WEIGHT_DECAY,
    Course,
    level_starts,
    train,
    train_family,
)
from ._device import find_device, threads
from ._output import METRICS, check_folder, write_figure
from ._report_page import REPORT, write_report

#: how the latency is measured
LATENCY_BATCH, LATENCY_ROUNDS = 256, 11

MODELS, ELASTIC = "models", "elastic"


@dataclass(frozen=True)
class DemoOptions:
    """What can be chosen.

    Attributes:
        seed: seed of the split, the initial weights and the training.
        run_dir: the folder to write models, figures and numbers to.
        epochs: passes over the training images, at least 4.
        width: channels of the first of two stages.
        device: auto, cpu, cuda, cuda:1, mps, ...; auto uses a GPU if there is one.
        threads: CPU threads.
        force: overwrite an earlier demo.
    """

    seed: int = 0
    run_dir: Path = Path("runs/demo")
    epochs: int = 40
    width: int = 16
    device: str = "auto"
    threads: int = 1
    force: bool = False


@dataclass(frozen=True)
class DemoReport:
    """The result of a run; `metrics` is the content of its metrics file."""

    options: DemoOptions
    rows: tuple[Row, ...]
    held_out: int
    seconds: float
    files: tuple[str, ...]
    metrics: Mapping[str, Any]

    @property
    def source(self) -> Row:
        """The trained network."""
        return self.rows[0]

    @property
    def half(self) -> Row:
        """The one with half the basis functions and nothing else changed."""
        return next(row for row in self.rows if row.name == HALF)


def check_demo(options: DemoOptions) -> torch.device:
    """Check the options before any work; the device to use."""
    for name, least in (("epochs", len(LEVELS)), ("width", 1), ("threads", 1), ("seed", 0)):
        most = 2**32 - 1 if name == "seed" else None
        whole_number(name, getattr(options, name), least, most)
    device = find_device(options.device)
    check_folder(Path(options.run_dir), "demo", (METRICS, MODELS, REPORT, *FIGURES), options.force)
    return device


def run_demo(
    options: DemoOptions, watch: Callable[[Progress], None] = lambda progress: None
) -> DemoReport:
    """Train with refinement, compress without retraining, measure, write everything down.

    A small stateful ODE-Net is trained on three quarters of the digits, its basis functions and
    steps doubling together from 1 to 8. Then it is written in smaller bases and with fewer
    steps, without data. All models are measured on the last quarter, which nothing before
    has seen. Stateful ODE-Nets (Queiruga et al. 2021) do this on CIFAR-10. A network of half the
    width is trained elastically for half the epochs: one run for the sizes 4, 2 and 1, beside
    networks that are trained for each of them alone.

    Args:
        options: what can be chosen.
        watch: called as the run goes on.
    """
    device = check_demo(options)
    start = time.perf_counter()
    split = digits(options.seed)
    held_out = len(split.test_labels)
    with threads(options.threads), torch.random.fork_rng(devices=[]):
        torch.manual_seed(options.seed)
        course = Course(
            split.train_images,
            split.train_labels,
            epochs=options.epochs,
            width=options.width,
            seed=options.seed,
            device=device,
            watch=watch,
        )
        model, history = train(course)
        trained = time.perf_counter()
        elastic, family = _family(course, split)
        models = {"source": model} | {
            variant.name: ct.compress(model, variant.basis, solver=variant.solver)
            for variant in VARIANTS
        }
        correct = {}
        for name, m in models.items():
            correct[name] = count_correct(m, split, device)
            watch(Progress("evaluating", len(correct), len(models)))
        milliseconds = latencies(models, split.train_images[:LATENCY_BATCH].to(device), watch)
    rows = table(models, correct, milliseconds, held_out)
    folder = Path(options.run_dir)
    for i, (name, m) in enumerate(models.items()):
        watch(Progress("writing", i, len(models)))
        ct.save(m, folder / MODELS / name)
    ct.save(elastic, folder / MODELS / ELASTIC)
    for name, fig in figures(models, rows, held_out).items():
        write_figure(folder / name, fig)
    seconds = {"training": trained - start, "total": time.perf_counter() - start}
    metrics = measured(options, device, split, history, rows, seconds) | {"family": family}
    write_json(folder / METRICS, metrics)
    write_report(folder)
    watch(Progress("writing", len(models), len(models)))
    return DemoReport(
        options=options,
        rows=rows,
        held_out=held_out,
        seconds=seconds["total"],
        files=(METRICS, REPORT, *FIGURES, *(f"{MODELS}/{name}" for name in (*models, ELASTIC))),
        metrics=metrics,
    )


def _family(course: Course, split: Split) -> tuple[ct.Elastic, list[dict[str, float]]]:
    """The elastic network, and for each size its accuracy and that of a network trained alone."""
    epochs, width, device = max(1, course.epochs // 2), max(1, course.width // 2), course.device
    elastic, alone = train_family(replace(course, epochs=epochs, width=width))
    held_out = len(split.test_labels)
    rows = [
        {
            "size": size,
            "parameters": sum(p.numel() for p in model.parameters()),
            "elastic": count_correct(elastic.at(size).eval(), split, device) / held_out,
            "alone": count_correct(model, split, device) / held_out,
        }
        for size, model in alone.items()
    ]
    return elastic, rows


def measured(
    options: DemoOptions,
    device: torch.device,
    split: Split,
    history: list[dict[str, float]],
    rows: tuple[Row, ...],
    seconds: Mapping[str, float],
) -> dict[str, Any]:
    """The content of the metrics file."""
    return {
        "recipe": "demo",
        "options": asdict(options) | {"run_dir": str(options.run_dir), "device": str(device)},
        "training": {
            "images": len(split.train_labels),
            "levels": list(LEVELS),
            "level_starts": level_starts(options.epochs),
            "batch": BATCH,
            "learning_rate": LEARNING_RATE,
            "weight_decay": WEIGHT_DECAY,
            "label_smoothing": SMOOTHING,
            "history": history,
        },
        "held_out_images": len(split.test_labels),
        "latency": {"batch": LATENCY_BATCH, "rounds": LATENCY_ROUNDS, "statistic": "median"},
        "rows": [asdict(row) for row in rows],
        "seconds": {name: round(value, 2) for name, value in seconds.items()},
        "versions": {
            "continua": ct.__version__,
            "torch": torch.__version__,
            "python": platform.python_version(),
        },
    }


@torch.inference_mode()
def count_correct(model: nn.Module, split: Split, device: torch.device) -> int:
    """Held-out images that the model classifies correctly."""
    found = model(split.test_images.to(device)).argmax(1).cpu()
    return int((found == split.test_labels).sum())


@torch.inference_mode()
def latencies(
    models: Mapping[str, nn.Module], x: Tensor, watch: Callable[[Progress], None]
) -> dict[str, float]:
    """Milliseconds per batch, the median of several rounds.

    Each round times every model once, so that whatever else the machine does meets them all.
    """
    times: dict[str, list[float]] = {name: [] for name in models}
    for i in range(LATENCY_ROUNDS + 1):  # the first to warm up
        for name, model in models.items():
            start = time.perf_counter()
            model(x)[0, 0].item()  # which waits for a GPU
            times[name].append(time.perf_counter() - start)
        watch(Progress("timing", i, LATENCY_ROUNDS))
    return {name: 1000 * statistics.median(t[1:]) for name, t in times.items()}
