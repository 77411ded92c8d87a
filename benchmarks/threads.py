"""Throughput of threads that share one block.

A residual unit of two convolutions and two batch norms in 16 buckets, called again and again on one
image without a graph, by one thread and by eight, in turn. Every thread computes on its own twin of
the field, and torch itself uses one thread. The results are compared with those of one thread.

    python benchmarks/threads.py [--threads 8] [--seconds 2] [--rounds 5]
"""

from __future__ import annotations

import argparse
import statistics
import threading
import time

import torch
from torch import nn

import continua as ct

GOAL = 1.6  # of one thread, on two cores
C = 32  # channels


def made() -> ct.ODEBlock:
    torch.manual_seed(0)
    field = nn.Sequential(
        nn.BatchNorm2d(C), nn.ReLU(), nn.Conv2d(C, C, 3, padding=1, bias=False),
        nn.BatchNorm2d(C), nn.ReLU(), nn.Conv2d(C, C, 3, padding=1, bias=False),
    )  # fmt: skip
    block = ct.ODEBlock(field, ct.PiecewiseConstant(16), ct.Euler(steps=16), init="independent")
    return block.eval()


@torch.no_grad()
def calls_per_second(
    block: ct.ODEBlock, x: torch.Tensor, wanted: torch.Tensor, threads: int, seconds: float
) -> float:
    counts, start = [0] * threads, threading.Barrier(threads + 1)

    def work(n: int) -> None:
        with torch.no_grad():
            start.wait()
            while time.perf_counter() < end[0]:
                if not torch.equal(block(x), wanted):
                    raise AssertionError("a thread got another result")
                counts[n] += 1

    end = [float("inf")]
    workers = [threading.Thread(target=work, args=(n,)) for n in range(threads)]
    for worker in workers:
        worker.start()
    start.wait()
    end[0] = time.perf_counter() + seconds
    for worker in workers:
        worker.join()
    return sum(counts) / seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    block = made()
    for size in (32, 64):
        x = torch.randn(1, C, size, size)
        with torch.no_grad():
            wanted = block(x)
        ratios = []
        for _ in range(options.rounds):
            one = calls_per_second(block, x, wanted, 1, options.seconds)
            many = calls_per_second(block, x, wanted, options.threads, options.seconds)
            ratios.append(many / one)
        print(
            f"{size} x {size}: {options.threads} threads {statistics.median(ratios):.2f} "
            f"({min(ratios):.2f}-{max(ratios):.2f}) of one, which makes {one:.0f} calls a second; "
            f"goal {GOAL}"
        )


if __name__ == "__main__":
    main()
