"""Seconds of a training step of each study, as its recipe has it and with cheaper settings.

    python benchmarks/steps.py --root FOLDER [--only NAME ...] [--rounds 5]
    python benchmarks/steps.py --images [--rounds 5]

One batch of the recipe at laptop scale, forward, backward and an update, on one thread. Variants
take turns; the least process time of the rounds is shown, and its ratio to the recipe as it is.
Flows are trained for a few steps first, because an adaptive solver costs more on a trained flow.
With `--images`, milliseconds per image of nanode/table1, from laptop to night scale, the changes
one after the other.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import torch
from torch import Tensor, nn

import continua as ct
from continua.data import Dataset, Part
from continua.recipes import RECIPES, Run
from continua.recipes.dissecting import _annuli, _tracking
from continua.recipes.nanode import _rows
from continua.train import Task

BF16 = "precision=bf16"
PLAIN = "gradient=Backprop()"
ROWS = (_rows.AUTO, _rows.UNCONSTRAINED, _rows.bucketed(10), _rows.bucketed(20), _rows.waves(10))
#: a recipe, its settings, and what is tried instead
TRAININGS: dict[str, tuple[str, list[str], list[list[str]]]] = {
    **{
        f"nanode/table1, {row.name}": (
            "nanode/cifar10", row.settings(), [[BF16]] if row.residual else [[PLAIN], [BF16]],
        )
        for row in ROWS
    },
    **{
        f"nanode/table2-moving-mnist, {kind}": (f"nanode/moving-mnist-{kind}", [], [])
        for kind in ("svg", "auto", "nanode")
    },
    "stateful/cifar10, 4 steps": (
        "stateful/cifar10",
        ["basis=PiecewiseConstant(4)", "solver=Euler(steps=4)", "refine_epochs=()"],
        [["channels_last=false"], [BF16]],
    ),
    "stateful/cifar10, 8 steps": (
        "stateful/cifar10",
        ["basis=PiecewiseConstant(8)", "solver=Euler(steps=8)", "refine_epochs=()"],
        [[BF16]],
    ),
    "stateful/mnist, 8 steps": (
        "stateful/mnist",
        ["basis=PiecewiseConstant(8)", "solver=Euler(steps=8)", "refine_epochs=()"],
        [[BF16]],
    ),
    "stateful/integrators, RK4": ("stateful/integrators", ["solver=RK4(steps=4)"], [[BF16]]),
    "stateful/norms": ("stateful/norms", [], [[BF16]]),
    "stateful/tagging-ewt, 16 steps": (
        "stateful/ewt",
        ["basis=PiecewiseConstant(16)", "solver=Euler(steps=16)", "refine_epochs=()"],
        [[BF16]],
    ),
    "dissecting/table1-cifar, 0-augmented": (
        "dissecting/table1-cifar", ["kind=zero"], [[PLAIN]],
    ),
    "dissecting/table1-cifar, input layer": (
        "dissecting/table1-cifar", ["kind=input-layer"], [[PLAIN]],
    ),
}  # fmt: skip
#: from nanode/table1 at laptop scale to night scale, one change after the other
TO_NIGHT = (
    ["gradient=Backprop()"], ["solver=Euler(steps=20)"], ["widths=(32, 64)", "stem_stride=4"],
    ["channels_last=false"], ["batch_size=256"],
)  # fmt: skip
GRADIENTS = (ct.Adjoint(), ct.Adjoint("backsolve"), ct.Checkpoint(), ct.Backprop())
Step = Callable[[], object]


def training(name: str, settings: list[str], root: Path) -> Step:
    """A step of a recipe on its first batch."""
    run = RECIPES[name].run("laptop", data_folder=root, settings=tuple(settings))
    return step_of(run, *run.load())


def step_of(run: Run, dataset: Dataset, task: Task) -> Step:
    """A step of a run on the first batch of its data."""
    torch.manual_seed(0)
    model = run.laid_out(run.setup.make(dataset)).train()
    course = run.setup.training
    batch = list(task.batch("train", torch.arange(course.batch_size), torch.Generator()))
    if run.setup.channels_last and batch[0].dim() == 4:
        batch[0] = batch[0].contiguous(memory_format=torch.channels_last)
    optimizer = course.make_optimizer(model)
    for group in optimizer.param_groups:
        group["lr"] = 1e-3

    def step() -> None:
        reduced = course.precision == "bf16"
        with torch.autocast("cpu", torch.bfloat16) if reduced else nullcontext():
            loss = task.loss(model, batch)[0]
        update(optimizer, loss)

    return step


def update(optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def images(rounds: int) -> None:
    """Print milliseconds per image, from laptop to night scale, on random images."""
    part = Part(torch.randn(256, 3, 32, 32), torch.randint(10, (256,)))
    dataset = Dataset("random", part, part, part, classes=10)
    rows = (_rows.waves(10), _rows.bucketed(20))
    print(f"| settings | {' | '.join(row.name for row in rows)} |\n|---|---|---|")
    changes: list[str] = []
    for change in ([], *TO_NIGHT):
        changes += change
        cells = []
        for row in rows:
            run = _rows.cifar10.run("laptop", settings=(*row.settings(), *changes))
            step = step_of(run, dataset, run.setup.task(dataset))
            batch = run.setup.training.batch_size
            cells.append(f"{1000 * min(timed(step) for _ in range(rounds + 1)) / batch:.2f}")
        label = ", ".join(f"`{setting}`" for setting in change) or "laptop scale"
        print(f"| {label} | {' | '.join(cells)} |", flush=True)


def timed(step: Step) -> float:
    """The process time of a step."""
    started = time.process_time()
    step()
    return time.process_time() - started


def annuli(name: str, gradient: ct.Gradient) -> Step:
    """A step of a flow on annuli."""
    torch.manual_seed(0)
    block = _annuli.fields()[name]
    block.gradient = gradient
    model = nn.Sequential(block, nn.Linear(2, 1))
    angle, far = torch.rand(1229) * 6.2832, torch.arange(1229) % 2
    x = (1.0 + far)[:, None] * torch.stack([angle.cos(), angle.sin()], 1)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)

    def step() -> None:
        out = model(x).squeeze(1)
        update(optimizer, nn.functional.binary_cross_entropy_with_logits(out, far.float()))

    return step


def tracking(gradient: ct.Gradient) -> Step:
    """A step of the flow that follows a signal."""
    torch.manual_seed(0)
    basis = {"0.*": ct.Fourier(2), "*": ct.Constant()}
    block = ct.ODEBlock(_tracking.mlp(2, 64, 2), basis, ct.Dopri5(1e-5, 1e-5), gradient)
    optimizer = torch.optim.Adam(block.parameters(), 3e-3)
    x = _tracking.starts(256, 0.5, torch.Generator().manual_seed(0))

    def step() -> None:
        update(optimizer, block.solve(x, running_cost=_tracking.cost).cost.mean())

    return step


def compare(name: str, steps: dict[str, Step], rounds: int, before: int) -> None:
    """Print the least time of every variant."""
    least = dict.fromkeys(steps, float("inf"))
    for made in steps.values():
        for _ in range(before):
            made()
    for _ in range(rounds):
        for label, made in steps.items():
            least[label] = min(least[label], timed(made))
    first = next(iter(least.values()))
    for label, seconds in least.items():
        print(f"| {name} | {label} | {seconds:.3f} | {seconds / first:.2f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=Path, help="the folder of the data")
    parser.add_argument("--only", nargs="*", default=None, help="studies whose names begin so")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--images", action="store_true", help="from laptop to night scale")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.images:
        images(options.rounds)
        return

    def wanted(name: str) -> bool:
        return options.only is None or name.startswith(tuple(options.only))

    print("| study | settings | seconds per step | ratio |\n|---|---|---|---|")
    for name in ("vanilla", "Galerkin", "data-controlled"):
        if wanted("dissecting/annuli"):
            steps = {f"`{g!r}`": annuli(name, g) for g in GRADIENTS}
            compare(f"dissecting/annuli, {name}", steps, options.rounds, 40)
    if wanted("dissecting/tracking"):
        steps = {f"`{g!r}`": tracking(g) for g in GRADIENTS}
        compare("dissecting/tracking", steps, options.rounds, 40)
    for name, (recipe, settings, tried) in TRAININGS.items():
        if wanted(name):
            adaptive = 6 if recipe.startswith("dissecting") else 1
            variants = {"as it is": training(recipe, settings, options.root)}
            for changes in tried:
                label = ", ".join(f"`{change}`" for change in changes)
                variants[label] = training(recipe, [*settings, *changes], options.root)
            compare(name, variants, options.rounds, adaptive)


if __name__ == "__main__":
    main()
