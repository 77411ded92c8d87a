"""One elastic training beside a network trained for each size.

An elastic run trains the sizes 4, 2 and 1 (basis functions and Euler steps) at once; a grown one
does so too, but begins with size 1 and is refined after each third of the epochs. Beside them
networks of each of these sizes are trained alone, for the same epochs, seeds and settings, and a
plain network is refined as the grown one is. All follow the gradient of functions of depth, or with
`--coefficients` that of the coefficients. Every test accuracy is taken once, at the end of a
run. The plain networks of size 4 are also compressed to 2 and 1 without retraining: projected, with
statistics read again from 512 training images, and fitted to them; and to a budget. The cost is
the processor time of a training step, measured in turn with that of the plain network of size 4.

    python benchmarks/elastic.py
    python benchmarks/elastic.py --data cifar10 --root FOLDER --epochs 24
    python benchmarks/elastic.py --data cifar10 --root FOLDER --precision bf16 --cost

Every run has a folder, in which it goes on after it was stopped: give the same command again.
Results are appended to RESULTS/results.jsonl as they come; `--report` only reads them, and
`--cost` only measures the cost.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

import continua as ct
from continua import plot
from continua.recipes import Run
from continua.recipes.stateful import cifar10, digits
from continua.train import evaluate

SIZES = (4, 2, 1)
SMOOTHNESS = 0.01
BUDGETS = (0.58, 0.584)  # of the parameters; 2 functions of 4 are 0.5836


def runs(options: argparse.Namespace, seed: int) -> Iterator[tuple[str, Run]]:
    """The runs of one seed, by name."""
    course = [
        f"epochs={options.epochs}", f"evaluate_every={options.epochs}", "refine_epochs=()",
        f"warmup={0.2 * options.epochs}", "schedule=one-cycle", f"precision={options.precision}",
        f"functional_gradient={not options.coefficients}",
    ]  # fmt: skip
    recipe = {"digits": digits, "cifar10": cifar10}[options.data]
    if options.data == "digits":
        course += ["width=8"]
    if options.samples is not None:
        course += [f"samples={options.samples}"]
    if options.held_out is not None:
        course += [f"held_out={options.held_out}"]
    growing = f"refine_epochs={_thirds(options.epochs)}"
    variants = {
        "elastic": (4, [f"elastic={SIZES}"]),
        "grown": (1, [f"elastic={SIZES}", growing]),
        "refined": (1, [growing]),
        **{f"size {n}": (n, []) for n in SIZES},
        "smooth": (4, [f"smoothness={SMOOTHNESS}"]),
    }
    for name, (size, settings) in variants.items():
        if options.runs and not any(name.startswith(kind) for kind in options.runs):
            continue
        shape = [f"basis=PiecewiseConstant({size})", f"solver=Euler(steps={size})"]
        folder = options.results / f"{options.data}-{name.replace(' ', '-')}-{seed}"
        run = recipe.run(
            "laptop", seed=seed, folder=folder, data_folder=options.root,
            settings=(*course, *shape, *settings),
        )  # fmt: skip
        yield name, run


def _thirds(epochs: int) -> tuple[int, int]:
    return epochs // 3, 2 * epochs // 3


def measured(name: str, run: Run) -> list[dict[str, Any]]:
    """The lines of one run: the sizes it was trained for, and what compression makes of it."""
    outcome, result = run.train(device="cpu")
    own = int(name.removeprefix("size ")) if name.startswith("size") else 4
    common = {"run": name, "seconds": result["seconds"], "samples": result["test_samples"]}
    if "sizes" in result:
        return [
            common | _line(int(n), found["parameters"], found["test"])
            for n, found in result["sizes"].items()
        ]
    lines = [common | _line(own, result["parameters"], result["test"])]
    if own == 4:
        _, task = run.load()
        generator, rows = torch.Generator().manual_seed(0), torch.arange(512).split(128)
        # Augmented, as what the network was trained on; and the images as they are.
        images = [task.batch("train", index, generator)[0] for index in rows]
        plain = [task.batch("train", index, None)[0] for index in rows]
        ways: dict[str, dict[str, Any]] = {
            "compressed": {},
            "statistics": {"calibrate": images},
            "statistics of plain images": {"calibrate": plain},
            "fit": {"calibrate": images, "method": "fit"},
            "fit to plain images": {"calibrate": plain, "method": "fit"},
        }
        for n, (way, options) in itertools.product(SIZES[1:], ways.items()):
            started = time.perf_counter()
            small = ct.compress(outcome.model, ct.PiecewiseConstant(n), steps=n, **options)
            taken = {"compress_seconds": time.perf_counter() - started}
            found = taken | _measured(n, small, run, task)
            lines.append(common | found | {"run": f"{name}, {way}"})
        for budget in BUDGETS:
            small = ct.compress(outcome.model, budget=budget, calibrate=images)
            found = {"run": f"{name}, budget {budget}"}
            lines.append(common | _measured(4, small, run, task) | found)
    return lines


def _measured(size: int, model: torch.nn.Module, run: Run, task: Any) -> dict[str, Any]:
    count = sum(p.numel() for p in model.parameters())
    return _line(size, count, evaluate(run.laid_out(model), task, "test"))


def _line(size: int, parameters: int, test: dict[str, float]) -> dict[str, Any]:
    return {"size": size, "parameters": parameters, "accuracy": test["accuracy"]}


def cost(options: argparse.Namespace, steps: int = 12) -> dict[str, float]:
    """The processor time of a training step, relative to that of the plain network of size 4.

    The networks take turns, so that what else the machine does falls on all of them.
    """
    found = {
        name: run for name, run in runs(options, 0) if name not in ("smooth", "grown", "refined")
    }
    steppers = {}
    for name, run in found.items():
        dataset, task = run.load()
        model = run.laid_out(run.setup.make(dataset)).train()
        elastic = ct.Elastic(model, SIZES) if name == "elastic" else None
        index = torch.arange(run.setup.training.batch_size)
        x, y = task.batch("train", index, torch.Generator().manual_seed(0))
        if run.setup.channels_last:
            x = x.contiguous(memory_format=torch.channels_last)
        optimizer = run.setup.training.make_optimizer(model)
        half = torch.autocast("cpu", torch.bfloat16, enabled=options.precision == "bf16")
        steppers[name] = half(_stepper(model, elastic, optimizer, x, y))
    times: dict[str, list[float]] = {name: [] for name in steppers}
    for i in range(steps + 2):
        for name, step in steppers.items():
            started = time.process_time()
            for _ in range(3):  # the size between once
                step()
            if i >= 2:  # the first ones warm up
                times[name].append(time.process_time() - started)
    medians = {name: statistics.median(values) for name, values in times.items()}
    ratios = {name: value / medians["size 4"] for name, value in medians.items()}
    if {"size 1", "size 2", "elastic"} <= ratios.keys():
        # The second third trains two sizes in every step.
        ratios["grown"] = (2 * ratios["size 1"] + ratios["size 2"] + ratios["elastic"]) / 3
    return ratios


def _stepper(
    model: torch.nn.Module, elastic: ct.Elastic | None, optimizer: Any, x: Any, y: Any
) -> Any:
    def criterion(out: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(out, y)

    steps = itertools.count()

    def step() -> None:
        number = next(steps)
        loss = criterion(model(x)) if elastic is None else elastic.loss(x, criterion, number)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def report(lines: list[dict[str, Any]], ratios: dict[str, float], figure: Path | None) -> None:
    """Print means and spreads, and draw them."""
    groups: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for line in lines:
        groups.setdefault((line["run"], line["size"]), []).append(line)
    print(f"{'run':<22}{'size':>5}{'parameters':>12}  {'test accuracy, %':<22}{'seeds':>6}")
    for (name, size), found in groups.items():
        shares = [100 * line["accuracy"] for line in found]
        spread = statistics.stdev(shares) if len(shares) > 1 else 0.0
        told = f"{statistics.mean(shares):.2f} ± {spread:.2f}"
        print(f"{name:<22}{size:>5}{found[0]['parameters']:>12,}  {told:<22}{len(shares):>6}")
    for name, ratio in ratios.items():
        print(f"cost of a step, {name}: {ratio:.2f}")
    if figure is None:
        return
    names = {
        "elastic": "one elastic run",
        "grown": "one elastic run, grown 1, 2, 4",
        "size": "trained one by one",
        "size 4, compressed": "trained at K=4, compressed",
        "size 4, fit": "the same, fitted to 512 images",
    }
    series: dict[str, list[plot.Measurement]] = {name: [] for name in names.values()}
    for line in lines:
        kind = line["run"] if "," in line["run"] else line["run"].split()[0]
        if kind in names:
            point = plot.Measurement(
                names[kind], line["size"], line["parameters"], line["accuracy"]
            )
            series[names[kind]].append(point)
    lowest = min(m.accuracy for m in series[names["size"]]) - 0.06
    series = {name: points for name, points in series.items() if points}
    plot.families(series, samples=lines[0]["samples"], lowest=lowest).savefig(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", choices=("digits", "cifar10"), default="digits")
    parser.add_argument("--root", type=Path, help="the folder of the images")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--samples", type=int, help="training images to use, all by default")
    parser.add_argument("--held-out", type=int, help="test images to use, all by default")
    parser.add_argument("--results", type=Path, default=Path("runs/elastic"))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--precision", choices=("no", "bf16"), default="no")
    parser.add_argument(
        "--coefficients", action="store_true", help="descend in coefficients, not in functions"
    )
    parser.add_argument(
        "--runs", nargs="+", choices=("elastic", "grown", "refined", "size", "size 4", "smooth")
    )
    parser.add_argument("--report", action="store_true", help="only read what is there")
    parser.add_argument("--cost", action="store_true", help="only measure the cost of steps")
    parser.add_argument("--figure", type=Path, help="where to draw")
    options = parser.parse_args()
    if options.epochs < 3:
        parser.error("--epochs is at least 3, a third for each size of a grown network")
    torch.set_num_threads(options.threads)
    if options.cost:
        report([], cost(options), None)
        return
    options.results.mkdir(parents=True, exist_ok=True)
    file = options.results / "results.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    known = {"data": options.data, "epochs": options.epochs, "samples_used": options.samples}
    known |= {"held_out": options.held_out, "precision": options.precision}
    known |= {"coefficients": options.coefficients}
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    if not options.report:
        done = {(line["run"], line["seed"]) for line in lines if known.items() <= line.items()}
        for seed in seeds:
            for name, run in runs(options, seed):
                if (name, seed) in done:
                    continue
                found = [line | known | {"seed": seed} for line in measured(name, run)]
                with file.open("a") as out:
                    out.writelines(json.dumps(line) + "\n" for line in found)
                lines += found
                print(name, seed, [f"{100 * line['accuracy']:.2f}" for line in found], flush=True)
    chosen = [line for line in lines if known.items() <= line.items() and line["seed"] in seeds]
    costs = not options.report and (not options.runs or {"elastic", "size"} <= {*options.runs})
    report(chosen, cost(options) if costs else {}, options.figure)


if __name__ == "__main__":
    main()
