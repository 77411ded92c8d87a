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

import numpy as np
import torch

from peers._problems import problems
from peers._sides.with_continua import side

ROWS = (
    "fixed-small",
    "adaptive-tiny",
    "adaptive-medium/backprop",
    "adaptive-medium/checkpoint",
    "adaptive-medium/adjoint",
    "galerkin/fixed-backprop",
    "galerkin/fixed-adjoint",
    "galerkin/adaptive-backprop",
    "galerkin/adaptive-adjoint",
    "cnf/exact",
    "cnf/hutchinson",
    "per-sample",
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
    build = side().build
    for row in options.rows:
        cases = []
        for compiled in (False, True):
            problem = problems()[row]()
            problem.settings["compile"] = compiled
            cases.append(build[row.split("/")[0]](problem))
        eager, fast = cases
        expected = eager.outcome()
        started = spent()
        fast.step()
        first = spent() - started
        found = fast.outcome()
        error = max(
            float(np.linalg.norm(found.gradients[name] - g) / np.linalg.norm(g))
            for name, g in expected.gradients.items()
        )
        best = [float("inf")] * 2
        for _ in range(options.rounds):
            for i, case in enumerate(cases):
                started = time.process_time()
                case.step()
                best[i] = min(best[i], time.process_time() - started)
        plain, quick = (1e3 * t for t in best)
        times = f"{plain:6.2f} ms {quick:6.2f} ms {quick / plain:6.2f} {first:6.1f} s"
        print(f"{row:28} {times} {error:8.1e}", flush=True)


if __name__ == "__main__":
    main()
