"""Bytes kept for the backward pass, per gradient and number of steps.

`continua.memory` counts them with saved-tensor hooks (parameters and input left out), follows the
peak of all tensors, and confirms it by the peak memory of a child process that runs one forward
and backward.

    python benchmarks/memory.py [--steps 10 100 1000] [--json]
"""

from __future__ import annotations

import argparse
import json
import platform
from datetime import date

import torch
from torch import nn

import continua as ct

METHODS = {
    "Backprop": (ct.RK4, ct.Backprop()),
    "Checkpoint": (ct.RK4, ct.Checkpoint()),
    "Checkpoint sqrt": (ct.RK4, ct.Checkpoint("sqrt")),
    "Adjoint interpolate": (ct.RK4, ct.Adjoint()),
    "Adjoint backsolve": (ct.RK4, ct.Adjoint("backsolve")),
    "Reversible": (ct.ReversibleHeun, ct.Reversible()),
}
BATCH, WIDTH, HIDDEN = 64, 16, 64


def block(solver: ct.Solver) -> ct.ODEBlock:
    field = nn.Sequential(nn.Linear(WIDTH, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, WIDTH))
    return ct.ODEBlock(field, ct.Constant(), solver)


def measured(method: str, steps: int) -> dict[str, int | None]:
    # The child process finds the factory under the name of this file, not as __main__.
    from memory import block

    torch.manual_seed(0)
    solver, gradient = METHODS[method]
    model = ct.build(block, solver=solver(steps=steps))
    x = torch.randn(BATCH, WIDTH, requires_grad=True)
    (row,) = ct.memory(model, x, methods=[gradient], confirm=True).rows
    return {"saved": row.saved, "held": row.held, "peak": row.peak, "process": row.process}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, nargs="+", default=[10, 100, 1000])
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = []
    for method in METHODS:
        found = [measured(method, n) for n in options.steps]
        row = {key: [one[key] for one in found] for key in found[0]}
        rows.append({"row": method, **row, "growth": row["saved"][-1] / row["saved"][0]})
    if options.json:
        facts = {"machine": platform.machine(), "torch": torch.__version__}
        print(
            json.dumps({"date": str(date.today()), **facts, "steps": options.steps, "rows": rows})
        )
        return
    print(
        f"MLP {WIDTH}-{HIDDEN}-{WIDTH}, batch {BATCH}; kB saved / kB peak of tensors / of process"
    )
    print(
        f"{'gradient':<22}" + "".join(f"{n:>24} steps" for n in options.steps) + f"{'growth':>10}"
    )
    for row in rows:
        cells = [
            " / ".join(f"{n / 1e3:.0f}" for n in three)
            for three in zip(row["saved"], row["peak"], row["process"], strict=True)
        ]
        print(f"{row['row']:<22}" + "".join(f"{c:>30}" for c in cells) + f"{row['growth']:>10.2f}")


if __name__ == "__main__":
    main()
