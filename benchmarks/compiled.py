"""Eager against compiled steps, forward and backward, on the small problems of the comparison.

Each round runs both in turn; the table shows the least processor time of each, and that of the
first compiled solve: tracing, compiling or reading from the cache, and solving, with compilers.

    python benchmarks/compiled.py [--rows fixed-small adaptive-tiny ...] [--rounds 50]

Set CONTINUA_CACHE to an empty folder to compile cold, and run it again for the warm time.
"""

from __future__ import annotations

import argparse
import os
import time

import torch

from peers._problems import problems
from peers._sides.with_continua import block_of, filled

ROWS = (
    "fixed-small",
    "adaptive-tiny",
    "adaptive-medium/backprop",
    "galerkin/fixed-backprop",
    "galerkin/adaptive-backprop",
)


def spent() -> float:
    """Processor time of this process and of the compilers that it has run."""
    return sum(os.times()[:4])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", nargs="+", default=ROWS)
    parser.add_argument("--rounds", type=int, default=50)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{'row':28} {'eager':>9} {'compiled':>9} {'ratio':>6} {'first':>8} {'error':>8}")
    for row in options.rows:
        problem = problems()[row]()
        x = torch.tensor(problem.inputs["x"])
        sides = []
        for compiled in (False, True):
            block = block_of(problem).compile(compiled)
            sides.append((block, filled(block, problem)))

        def solve(side, x=x):
            block, parameters = side
            y = block(x)
            return [y.detach(), *torch.autograd.grad(y.square().mean(), parameters)]

        solve(sides[0])
        started = spent()
        found = solve(sides[1])
        first = spent() - started
        error = max(
            float((a - b).norm() / b.norm()) for a, b in zip(found, solve(sides[0]), strict=True)
        )
        best = [float("inf")] * 2
        for _ in range(options.rounds):
            for i, side in enumerate(sides):
                started = time.process_time()
                solve(side)
                best[i] = min(best[i], time.process_time() - started)
        eager, fast = (1e3 * t for t in best)
        times = f"{eager:6.2f} ms {fast:6.2f} ms {fast / eager:6.2f} {first:6.1f} s"
        print(f"{row:28} {times} {error:8.1e}", flush=True)


if __name__ == "__main__":
    main()
