"""What it saves that a block in evaluation mode keeps what its last solve has read.

A residual unit of two convolutions and two batch norms in 16 buckets on one small image, repeated
(`continua.block._kept`) and solved in full, in turn.

    python benchmarks/kept.py [--rounds 200]
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch
from torch import nn

import continua as ct
from continua.block import _block


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=200)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    field = nn.Sequential(
        nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1, bias=False),
        nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1, bias=False),
    )  # fmt: skip
    block = ct.ODEBlock(field, ct.PiecewiseConstant(16), ct.Euler(steps=16)).eval()
    x, repeated = torch.randn(1, 16, 8, 8), _block.repeated
    ratios = []
    for i in range(options.rounds + 20):
        times = []
        for known in (repeated, lambda block, x: None):
            _block.repeated = known
            block(x)
            started = time.thread_time()
            block(x)
            times.append(time.thread_time() - started)
        if i >= 20:
            ratios.append(times[0] / times[1])
    quartiles = statistics.quantiles(ratios, n=4)
    print(f"repeated / in full: {quartiles[1]:.3f} ({quartiles[0]:.3f}-{quartiles[2]:.3f})")


if __name__ == "__main__":
    main()
