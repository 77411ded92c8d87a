"""Which first coefficients train better: the module's own at every depth, or draws per node?

A small stateful ODE-Net on the embedded digits, trained without refinement from eight basis
functions, each setting with several seeds; the held-out accuracy and the last training loss.

    python benchmarks/initialisation.py [--seeds 5] [--epochs 8]
"""

from __future__ import annotations

import argparse
import itertools
import statistics

import torch
from continua.data import digits
from torch import nn

import continua as ct


def network(basis: ct.Basis, solver: ct.Solver, init: str, width: int = 16) -> nn.Sequential:
    unit = nn.Sequential(
        nn.BatchNorm2d(width),
        nn.ReLU(),
        nn.Conv2d(width, width, 3, padding=1, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        nn.Conv2d(width, width, 3, padding=1, bias=False),
    )
    return nn.Sequential(
        nn.Conv2d(1, width, 3, padding=1, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        ct.ODEBlock(unit, basis, solver, init=init, span=(0, 4)),
        nn.BatchNorm2d(width),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(4 * width, 10),
    )


def train(basis: ct.Basis, solver: ct.Solver, init: str, seed: int, epochs: int):
    torch.manual_seed(seed)
    split = digits(seed=seed)
    model = network(basis, solver, init)
    batches = len(split.train_labels) // 64
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=epochs * batches)
    for _ in range(epochs):
        order = torch.randperm(len(split.train_labels))
        total = 0.0
        for batch in order[: batches * 64].split(64):
            loss = nn.functional.cross_entropy(
                model(split.train_images[batch]), split.train_labels[batch]
            )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            total += loss.item() / batches
    model.eval()
    with torch.no_grad():
        correct = model(split.test_images).argmax(1) == split.test_labels
    return 100 * correct.double().mean().item(), total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=8)
    options = parser.parse_args()
    bases = (ct.PiecewiseConstant(8), ct.PiecewiseLinear(8), ct.Fourier(4), ct.Legendre(8))
    solvers = (ct.Euler(steps=8), ct.RK4(steps=4))
    print(f"{options.seeds} seeds, {options.epochs} epochs; held-out % (training loss), mean")
    print(f"{'basis':<24}{'solver':<18}{'copy':>20}{'independent':>20}")
    for basis, solver in itertools.product(bases, solvers):
        cells = []
        for init in ("copy", "independent"):
            runs = [train(basis, solver, init, s, options.epochs) for s in range(options.seeds)]
            accuracy, loss = (statistics.mean(values) for values in zip(*runs, strict=True))
            cells.append(f"{accuracy:.2f} ({loss:.4f})")
        print(f"{basis!r:<24}{solver!r:<18}{cells[0]:>20}{cells[1]:>20}", flush=True)


if __name__ == "__main__":
    main()
