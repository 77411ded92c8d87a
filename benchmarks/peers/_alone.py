"""Rows without a peer: changing a basis, starting, and how costs grow."""

from __future__ import annotations

import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import torch
from torch import nn

import continua as ct
from continua.models import continuous_net

from ._measure import Row, quartiles

# The README's first example, down to a first result.
FIRST_RESULT = """
import torch
from torch import nn
import continua as ct
residual = nn.Sequential(nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1))
block = ct.ODEBlock(residual, ct.PiecewiseConstant(8), ct.Euler(steps=8), ct.Backprop())
block(torch.randn(4, 16, 8, 8))
"""

DOUBLINGS = 4


def compress(rounds: int) -> list[Row]:
    """Half the functions of a network of 1.6 million parameters, beside a copy of its weights."""
    model = continuous_net(
        in_channels=3, classes=10, basis=ct.PiecewiseConstant(16), solver=ct.Euler(steps=16)
    )
    tensors = list(model.state_dict().values())
    ours, copies = [], []
    for _ in range(rounds):
        ours.append(_seconds(lambda: ct.compress(model, basis=ct.PiecewiseConstant(8))))
        copies.append(_seconds(lambda: [t.clone() for t in tensors]))
    low, ratio, high = quartiles([a / b for a, b in zip(ours, copies, strict=True)])
    parameters = sum(p.numel() for p in model.parameters())
    note = f"{parameters:,} parameters, PiecewiseConstant(16) to (8)"
    seconds = (statistics.median(ours), statistics.median(copies))
    return [Row("compress", "memory copy", ratio, low, high, seconds, note=note)]


def start(rounds: int) -> list[Row]:
    """Time to import, and to the first result, in processes of their own."""
    scripts = {
        "start/import": "import continua",
        "start/first-result": FIRST_RESULT,
    }
    rows = []
    for row, script in scripts.items():
        _process(script)
        pairs = [(_process(script), _process("import torch")) for _ in range(rounds)]
        low, ratio, high = quartiles([a / b for a, b in pairs])
        seconds = (statistics.median(a for a, _ in pairs), statistics.median(b for _, b in pairs))
        rows.append(Row(row, "import torch", ratio, low, high, seconds))
    return rows


def growth(rounds: int) -> list[Row]:
    """Exponents of time and of saved memory as one measure of a model doubles four times."""
    base = {"steps": 8, "basis": 4, "width": 64, "batch": 64}
    rows = []
    for name in base:
        times: list[float] = []
        saved: list[float] = []
        for i in range(DOUBLINGS + 1):
            block, x = _growing(**{**base, name: base[name] * 2**i})
            parameters = list(block.parameters())

            def step(
                block: ct.ODEBlock = block,
                x: torch.Tensor = x,
                parameters: list[nn.Parameter] = parameters,
            ) -> object:
                return torch.autograd.grad(block(x).square().sum(), parameters)

            step()
            times.append(min(_seconds(step) for _ in range(rounds)))
            (use,) = ct.memory(block, x, methods=[ct.Backprop()]).rows
            saved.append(float(use.saved))
        facts = {"time": _exponent(times), "memory": _exponent(saved)}
        note = f"from {base[name]} to {base[name] * 2**DOUBLINGS}"
        rows.append(Row(f"growth/{name}", "", note=note, exponents=facts))
    return rows


ALONE: dict[str, Callable[[int], list[Row]]] = {
    "compress": compress,
    "start": start,
    "growth": growth,
}


def _growing(steps: int, basis: int, width: int, batch: int) -> tuple[ct.ODEBlock, torch.Tensor]:
    field = nn.Sequential(nn.Linear(16, width), nn.Tanh(), nn.Linear(width, 16))
    block = ct.ODEBlock(field, ct.PiecewiseLinear(basis), ct.RK4(steps=steps))
    return block, torch.randn(batch, 16)


def _exponent(values: list[float]) -> float:
    """The slope of log2(values) over the doublings, by least squares."""
    middle = (len(values) - 1) / 2
    logs = [math.log2(v) for v in values]
    above = sum((i - middle) * y for i, y in enumerate(logs))
    return above / sum((i - middle) ** 2 for i in range(len(values)))


def _seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def _process(script: str) -> float:
    # Bytecode is kept, as it is for a user; otherwise every import would compile its source.
    own = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    return _seconds(lambda: subprocess.run([sys.executable, "-c", script], check=True, env=own))
