"""Train once, ship many sizes: the demonstration, on the digits of scikit-learn."""

from __future__ import annotations

import platform
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import continua as ct
from continua import plot
from continua.data import Split, digits
from continua.train import Progress, write_json

from ._demo_training import (
    BATCH,
    LEARNING_RATE,
    LEVELS,
    SMOOTHING,
    WEIGHT_DECAY,
    level_starts,
    train,
)
from ._output import METRICS, check_folder, write_figure

#: how the latency is measured
LATENCY_BATCH, LATENCY_ROUNDS = 256, 11

FIGURES = ("accuracy.png", "weights.png", "variance.png")
MODELS = "models"


@dataclass(frozen=True)
class Variant:
    """One way to write the trained network: its place in the run folder, and what to change."""

    name: str
    series: str
    basis: ct.Basis
    solver: ct.Euler | ct.Midpoint | ct.RK4


VARIANTS = (
    Variant("constant4", "buckets, 8 Euler steps", ct.PiecewiseConstant(4), ct.Euler(steps=8)),
    Variant("constant2", "buckets, 8 Euler steps", ct.PiecewiseConstant(2), ct.Euler(steps=8)),
    Variant("constant1", "buckets, 8 Euler steps", ct.PiecewiseConstant(1), ct.Euler(steps=8)),
    Variant(
        "constant4-short", "buckets, K Euler steps", ct.PiecewiseConstant(4), ct.Euler(steps=4)
    ),
    Variant(
        "constant2-short", "buckets, K Euler steps", ct.PiecewiseConstant(2), ct.Euler(steps=2)
    ),
    Variant("constant4-rk4", "buckets, 2 RK4 steps", ct.PiecewiseConstant(4), ct.RK4(steps=2)),
    Variant("linear4", "hats, 8 Euler steps", ct.PiecewiseLinear(4), ct.Euler(steps=8)),
    Variant("linear2", "hats, 8 Euler steps", ct.PiecewiseLinear(2), ct.Euler(steps=8)),
    Variant("chebyshev3", "Chebyshev, 8 Euler steps", ct.Chebyshev(3), ct.Euler(steps=8)),
)
HALF = "constant4"


@dataclass(frozen=True)
class DemoOptions:
    """What can be chosen.

    Attributes:
        seed: of the split, of the first weights and of the training.
        run_dir: the folder for the models, figures and numbers.
        epochs: passes over the training images, at least one for each of the four levels.
        width: channels of the first of two stages.
        device: auto, cpu, cuda, cuda:1, mps, ...; auto takes a GPU where there is one.
        threads: processor threads.
    """

    seed: int = 0
    run_dir: Path = Path("runs/demo")
    epochs: int = 40
    width: int = 16
    device: str = "auto"
    threads: int = 1


@dataclass(frozen=True)
class Row:
    """One model of the table.

    Attributes:
        name: its folder.
        basis: of its weights and state.
        size: the number of basis functions, K.
        solver: the scheme.
        steps: of the scheme, per block.
        parameters: of the whole network.
        correct: held-out images that it classifies correctly.
        accuracy: their share.
        milliseconds: per batch, the median.
        parameter_ratio: relative to the source.
        accuracy_change: relative to the source, in points.
        latency_ratio: relative to the source.
    """

    name: str
    basis: str
    size: int
    solver: str
    steps: int
    parameters: int
    correct: int
    accuracy: float
    milliseconds: float
    parameter_ratio: float
    accuracy_change: float
    latency_ratio: float


@dataclass(frozen=True)
class DemoReport:
    """What a run gives back; `metrics` is what its file holds."""

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
    """Refuse what cannot work, before any work; the device to work on."""
    for name, least in (("epochs", len(LEVELS)), ("width", 1), ("threads", 1), ("seed", 0)):
        value = getattr(options, name)
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            why = ", one for each level of the training" if name == "epochs" else ""
            raise ct.ArgumentError(f"{name} must be at least {least}{why}, not {value!r}")
    if options.seed >= 2**32:
        raise ct.ArgumentError(f"seed must be below 2**32, not {options.seed}")
    device = find_device(options.device)
    check_folder(Path(options.run_dir), "demo", (METRICS, MODELS, *FIGURES))
    return device


def find_device(name: str) -> torch.device:
    """The device of this name, if it is here."""
    if name == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(1, device=device).cpu()
    except (RuntimeError, AssertionError, NotImplementedError):
        # torch's own message is a page of build advice.
        raise ct.ArgumentError(
            f"there is no device {name!r} here; use auto, cpu, or a GPU that torch sees"
        ) from None
    return device


def run_demo(
    options: DemoOptions, watch: Callable[[Progress], None] = lambda progress: None
) -> DemoReport:
    """Train with refinement, compress without retraining, measure, write everything down.

    A small stateful ODE-Net is trained on three quarters of the digits, its basis functions and
    steps doubling together from 1 to 8. Then it is written in smaller bases and with fewer
    steps, without data. All models are measured on the last quarter, which nothing before
    has seen. Stateful ODE-Nets (Queiruga et al. 2021) do this on CIFAR-10.

    Args:
        options: what can be chosen.
        watch: called as the run goes on.
    """
    device = check_demo(options)
    start = time.perf_counter()
    split = digits(options.seed)
    with threads(options.threads), torch.random.fork_rng(devices=[]):
        torch.manual_seed(options.seed)
        model, history = train(
            split.train_images,
            split.train_labels,
            epochs=options.epochs,
            width=options.width,
            seed=options.seed,
            device=device,
            watch=watch,
        )
        trained = time.perf_counter()
        models = {"source": model} | {
            variant.name: ct.compress(model, variant.basis, solver=variant.solver)
            for variant in VARIANTS
        }
        correct = {}
        for name, m in models.items():
            correct[name] = count_correct(m, split, device)
            watch(Progress("evaluating", len(correct), len(models)))
        milliseconds = latencies(models, split.train_images[:LATENCY_BATCH].to(device), watch)
    rows = table(models, correct, milliseconds, len(split.test_labels))

    folder = Path(options.run_dir)
    for i, (name, m) in enumerate(models.items()):
        watch(Progress("writing", i, len(models)))
        ct.save(m, folder / MODELS / name)
    for name, fig in figures(models, rows, len(split.test_labels)).items():
        write_figure(folder / name, fig)
    seconds = time.perf_counter() - start
    metrics = {
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
        "seconds": {"training": round(trained - start, 2), "total": round(seconds, 2)},
        "versions": {
            "continua": ct.__version__,
            "torch": torch.__version__,
            "python": platform.python_version(),
        },
    }
    write_json(folder / METRICS, metrics)
    watch(Progress("writing", len(models), len(models)))
    return DemoReport(
        options=options,
        rows=rows,
        held_out=len(split.test_labels),
        seconds=seconds,
        files=(METRICS, *FIGURES, *(f"{MODELS}/{name}" for name in models)),
        metrics=metrics,
    )


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Torch with this many threads; small images gain nothing from more."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


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


def table(
    models: Mapping[str, nn.Module],
    correct: Mapping[str, int],
    milliseconds: Mapping[str, float],
    held_out: int,
) -> tuple[Row, ...]:
    """One row per model, the source first."""
    parameters = {n: sum(p.numel() for p in m.parameters()) for n, m in models.items()}
    rows = []
    for name, model in models.items():
        block = next(m for m in model.modules() if isinstance(m, ct.ODEBlock))
        basis = next(iter(block.expansion.weights.values()))
        rows.append(
            Row(
                name=name,
                basis=repr(basis),
                size=basis.size,
                solver=type(block.solver).__name__,
                steps=int(block.solver.config()["steps"]),
                parameters=parameters[name],
                correct=correct[name],
                accuracy=correct[name] / held_out,
                milliseconds=round(milliseconds[name], 3),
                parameter_ratio=round(parameters[name] / parameters["source"], 4),
                accuracy_change=round(100 * (correct[name] - correct["source"]) / held_out, 4),
                latency_ratio=round(milliseconds[name] / milliseconds["source"], 4),
            )
        )
    return tuple(rows)


def figures(
    models: Mapping[str, nn.Module], rows: tuple[Row, ...], held_out: int
) -> dict[str, plot.Figure]:
    """Accuracy over size, weights over depth, running variance over depth."""
    by_name = {row.name: row for row in rows}

    def measured(name: str, series: str) -> plot.Measurement:
        row = by_name[name]
        return plot.Measurement(series, row.size, row.parameters, row.accuracy)

    blocks = {name: model.get_submodule("block2") for name, model in models.items()}
    source = blocks["source"]
    assert isinstance(source, ct.ODEBlock)
    shown = {
        by_name[name].basis: block
        for name, block in blocks.items()
        if name in (HALF, "linear4", "chebyshev3") and isinstance(block, ct.ODEBlock)
    }
    label = f"{by_name['source'].basis}, trained"
    return dict(
        zip(
            FIGURES,
            (
                plot.sizes(
                    measured("source", "source: 8 buckets, 8 Euler steps"),
                    [measured(v.name, v.series) for v in VARIANTS],
                    images=held_out,
                ),
                plot.weights(source, shown, label=label),
                plot.state(source, shown, label=label),
            ),
            strict=True,
        )
    )
