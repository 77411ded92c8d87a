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
from pathlib import Path

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
    """By how much one forward and backward raises the peak of a child process."""
    command = [sys.executable, __file__, "--child", method, str(steps)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return int(done.stdout)


def child(method: str, steps: int) -> None:
    torch.set_num_threads(1)
    for n in (1, 1):  # whatever is loaded on first use
        block, x = block_and_input(method, n)
        block(x).sum().backward()
    block, x = block_and_input(method, steps)
    before = peak()
    block(x).sum().backward()
    print(peak() - before)


def peak() -> int:
    """The most memory that this process has had, in bytes."""
    status = Path("/proc/self/status")
    if status.exists():  # getrusage remembers the parent's peak through fork and exec
        lines = dict(line.split(":", 1) for line in status.read_text().splitlines())
        return 1024 * int(lines["VmHWM"].split()[0])
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


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
