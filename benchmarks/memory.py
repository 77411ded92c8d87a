"""Bytes kept for the backward pass, per gradient and number of steps.

Counted with saved-tensor hooks (parameters left out), and confirmed by the peak memory of a child
process that runs one forward and backward.

    python benchmarks/memory.py [--steps 10 100 1000] [--json]
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import subprocess
import sys
from datetime import date

import torch
from torch import Tensor, nn

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


def block_and_input(method: str, steps: int) -> tuple[ct.ODEBlock, Tensor]:
    torch.manual_seed(0)
    field = nn.Sequential(nn.Linear(WIDTH, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, WIDTH))
    solver, gradient = METHODS[method]
    block = ct.ODEBlock(field, ct.Constant(), solver(steps=steps), gradient)
    return block, torch.randn(BATCH, WIDTH, requires_grad=True)


def saved_bytes(method: str, steps: int) -> int:
    block, x = block_and_input(method, steps)
    own = {t.untyped_storage().data_ptr() for t in (x, *block.parameters())}
    kept: dict[int, int] = {}

    def pack(t: Tensor) -> Tensor:
        storage = t.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        out = block(x)
    total = sum(kept.values())
    out.sum().backward()
    return total


def peak_bytes(method: str, steps: int) -> int:
    """The peak of a child process, less that of one that takes a single step."""
    peaks = []
    for n in (steps, 1):
        command = [sys.executable, __file__, "--child", method, str(n)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        peaks.append(int(done.stdout))
    return max(peaks[0] - peaks[1], 0)


def child(method: str, steps: int) -> None:
    torch.set_num_threads(1)
    block, x = block_and_input(method, steps)
    block(x).sum().backward()
    print(1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, nargs="+", default=[10, 100, 1000])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--child", nargs=2, metavar=("METHOD", "STEPS"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.child[0], int(options.child[1]))
        return
    rows = []
    for method in METHODS:
        saved = [saved_bytes(method, n) for n in options.steps]
        peak = [peak_bytes(method, n) for n in options.steps]
        rows.append({"row": method, "saved": saved, "peak": peak, "growth": saved[-1] / saved[0]})
    if options.json:
        facts = {"machine": platform.machine(), "torch": torch.__version__}
        print(
            json.dumps({"date": str(date.today()), **facts, "steps": options.steps, "rows": rows})
        )
        return
    print(f"MLP {WIDTH}-{HIDDEN}-{WIDTH}, batch {BATCH}; kB saved by hooks / kB of process peak")
    print(
        f"{'gradient':<22}" + "".join(f"{n:>20} steps" for n in options.steps) + f"{'growth':>10}"
    )
    for row in rows:
        cells = [
            f"{s / 1e3:.0f} / {p / 1e3:.0f}" for s, p in zip(row["saved"], row["peak"], strict=True)
        ]
        print(f"{row['row']:<22}" + "".join(f"{c:>26}" for c in cells) + f"{row['growth']:>10.2f}")


if __name__ == "__main__":
    main()
