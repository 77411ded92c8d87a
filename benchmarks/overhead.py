"""What continua costs over the same arithmetic written by hand.

Each pair runs interleaved in one process (ours, hand, ours, hand, ...), so that both see the same
machine; a row is the median of the ratios of neighbouring runs, with their quartiles. The process
keeps the memory it frees (`keeping.py` says why).

    python benchmarks/overhead.py [--rounds 40] [--threads 2] [--json]
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable
from datetime import date

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import continua as ct
from keeping import keep_freed_memory


def conv_unit(channels: int) -> nn.Sequential:
    return nn.Sequential(
        nn.BatchNorm2d(channels),
        nn.ReLU(),
        nn.Conv2d(channels, channels, 3, padding=1, bias=False),
        nn.BatchNorm2d(channels),
        nn.ReLU(),
        nn.Conv2d(channels, channels, 3, padding=1, bias=False),
    )


class Residuals(nn.Module):
    """The plain residual network: one unit per step."""

    def __init__(self, units: list[nn.Module], h: float):
        super().__init__()
        self.units = nn.ModuleList(units)
        self.h = h

    def forward(self, z: Tensor) -> Tensor:
        for unit in self.units:
            z = torch.add(z, unit(z), alpha=self.h)
        return z


class HandMLP(nn.Module):
    """RK4 over a two-layer perceptron, its weights contracted with the basis before the loop."""

    def __init__(self, block: ct.ODEBlock):
        super().__init__()
        self.stacks = nn.ParameterList([p.detach().clone() for p in block.field.parameters()])
        self.steps = block.solver.steps
        basis = block.expansion.weights["0.weight"]
        s = torch.arange(2 * self.steps + 1, dtype=torch.float64) / (2 * self.steps)
        self.register_buffer("phi", basis(s).to(torch.float32))  # [2N + 1, K]

    def forward(self, z: Tensor) -> Tensor:
        W1, b1, W2, b2 = (
            (self.phi @ p.flatten(1)).unflatten(1, p.shape[1:]).unbind(0) for p in self.stacks
        )
        h = 1 / self.steps

        def f(i: int, z: Tensor) -> Tensor:
            return F.linear(torch.tanh(F.linear(z, W1[i], b1[i])), W2[i], b2[i])

        for n in range(self.steps):
            k1 = f(2 * n, z)
            k2 = f(2 * n + 1, torch.add(z, k1, alpha=h / 2))
            k3 = f(2 * n + 1, torch.add(z, k2, alpha=h / 2))
            k4 = f(2 * n + 2, torch.add(z, k3, alpha=h))
            z = torch.add(z, k1, alpha=h / 6)
            z = z.add_(k2, alpha=h / 3).add_(k3, alpha=h / 3).add_(k4, alpha=h / 6)
        return z


def train_step(model: nn.Module, x: Tensor) -> Callable[[], Tensor]:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)

    def step() -> Tensor:
        optimizer.zero_grad()
        out = model(x)
        out.square().mean().backward()
        optimizer.step()
        return out

    return step


def inference(model: nn.Module, x: Tensor) -> Callable[[], Tensor]:
    model.eval()

    def step() -> Tensor:
        with torch.no_grad():
            return model(x)

    return step


def conv_training() -> tuple[Callable[[], Tensor], Callable[[], Tensor]]:
    block = ct.ODEBlock(conv_unit(16), ct.PiecewiseConstant(8), ct.Euler(steps=8))
    plain = Residuals([block.at((k + 0.5) / 8) for k in range(8)], h=1 / 8)
    x = torch.randn(64, 16, 32, 32)
    return train_step(block, x), train_step(plain, x)


def mlp_training() -> tuple[Callable[[], Tensor], Callable[[], Tensor]]:
    field = nn.Sequential(nn.Linear(64, 128), nn.Tanh(), nn.Linear(128, 64))
    block = ct.ODEBlock(field, ct.Chebyshev(8), ct.RK4(steps=16), init="independent")
    x = torch.randn(128, 64)
    return train_step(block, x), train_step(HandMLP(block), x)


def unrolled_inference() -> tuple[Callable[[], Tensor], Callable[[], Tensor]]:
    block = ct.ODEBlock(conv_unit(16), ct.PiecewiseConstant(8), ct.Euler(steps=8))
    plain = Residuals([block.at((k + 0.5) / 8) for k in range(8)], h=1 / 8)
    x = torch.randn(64, 16, 32, 32)
    return inference(ct.unroll(block), x), inference(plain, x)


ROWS = {
    "conv+BN block, training step ÷ plain PyTorch": (conv_training, 1.05),
    "MLP block RK4 x 16, training step ÷ hand-written loop": (mlp_training, 1.15),
    "unrolled model, inference ÷ plain network": (unrolled_inference, 1.02),
}


def measure(
    ours: Callable[[], Tensor], hand: Callable[[], Tensor], rounds: int
) -> tuple[float, float, float, float]:
    """Quartiles of the ratio of neighbouring runs, and the relative difference of the outputs."""
    a, b = ours(), hand()
    difference = float(((a - b).norm() / b.norm()).detach())
    ratios = []
    for i in range(rounds + 3):
        first, second = (ours, hand) if i % 2 else (hand, ours)
        times = []
        for run in (first, second):
            start = time.perf_counter()
            run()
            times.append(time.perf_counter() - start)
        mine, theirs = times if i % 2 else times[::-1]
        if i >= 3:  # the first rounds warm caches and allocators
            ratios.append(mine / theirs)
    low, middle, high = statistics.quantiles(ratios, n=4)
    return middle, low, high, difference


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    keep_freed_memory()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    rows = []
    for name, (make, goal) in ROWS.items():
        ratio, low, high, difference = measure(*make(), options.rounds)
        rows.append(
            {"row": name, "ratio": ratio, "low": low, "high": high, "goal": goal,
             "output_difference": difference}
        )  # fmt: skip
    if options.json:
        machine = {
            "processor": platform.processor() or platform.machine(),
            "torch": torch.__version__,
        }
        print(json.dumps({"date": str(date.today()), **machine, **vars(options), "rows": rows}))
        return
    print(f"{options.rounds} rounds, {options.threads} threads, torch {torch.__version__}")
    print(f"{'ours ÷ hand-written':<58}{'ratio':>7}{'quartiles':>16}{'goal':>7}{'difference':>12}")
    for row in rows:
        spread = f"{row['low']:.3f}-{row['high']:.3f}"
        print(f"{row['row']:<58}{row['ratio']:>7.3f}{spread:>16}{row['goal']:>7.2f}"
              f"{row['output_difference']:>12.1e}")  # fmt: skip


if __name__ == "__main__":
    main()
