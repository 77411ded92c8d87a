"""What it saves that the weights of a block in evaluation mode are kept from solve to solve.

A residual unit of two convolutions and two batch norms in 16 buckets on one small image, with the
views that the last solve has read (`FieldRun.values`), without them, and unrolled, in turn.

    python benchmarks/views.py [--rounds 400]
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch
from torch import nn

import continua as ct
from continua.field import _run


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=400)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    field = nn.Sequential(
        nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1, bias=False),
        nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1, bias=False),
    )  # fmt: skip
    block = ct.ODEBlock(field, ct.PiecewiseConstant(16), ct.Euler(steps=16)).eval()
    x, recording = torch.randn(1, 16, 8, 8), _run.recording
    cases = {
        "with": (block, recording),
        "without": (block, lambda: True),
        "unrolled": (ct.unroll(block), recording),
    }
    times: dict[str, list[float]] = {name: [] for name in cases}
    for i in range(options.rounds + 20):
        for name, (model, _run.recording) in cases.items():
            model(x)
            started = time.thread_time()
            model(x)
            if i >= 20:
                times[name].append(time.thread_time() - started)
    for name in ("without", "unrolled"):
        ratios = [a / b for a, b in zip(times["with"], times[name], strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4)
        print(f"with / {name}: {middle:.3f} ({low:.3f}-{high:.3f})")


if __name__ == "__main__":
    main()
