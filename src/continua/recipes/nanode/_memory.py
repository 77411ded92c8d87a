"""Memory over depth: what the tables of the paper list as activation memory, measured."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

import continua as ct
from continua import plot
from continua.files import write_whole
from continua.measure import readable_bytes
from continua.models import Residual
from continua.train import Progress

from .._output import csv_text, write_figure
from .._setup import Scale
from .._study import Circumstances, Study, table


@dataclass(frozen=True)
class Size:
    """Of the field and its input.

    Attributes:
        width: channels of the state; a quarter as many inside.
        order: of the trigonometric polynomials.
        side: of an image.
        batch: how many images.
        steps: the depths to measure at.
    """

    width: int
    order: int
    side: int
    batch: int
    steps: tuple[int, ...]


DEPTHS = (1, 2, 5, 10, 20, 50, 100, 200)
SIZES: dict[Scale, Size] = {
    "smoke": Size(width=8, order=1, side=4, batch=1, steps=(1, 2, 4)),
    "laptop": Size(width=256, order=10, side=16, batch=1, steps=DEPTHS),
    "full": Size(width=256, order=10, side=32, batch=8, steps=DEPTHS),
}

#: solver and gradient of each line
METHODS: dict[str, tuple[Callable[..., ct.Solver], ct.Gradient]] = {
    "Backprop": (ct.Euler, ct.Backprop()),
    "Adjoint interpolate": (ct.Euler, ct.Adjoint()),
    "Checkpoint all": (ct.Euler, ct.Checkpoint()),
    "Checkpoint sqrt": (ct.Euler, ct.Checkpoint("sqrt")),
    "Adjoint backsolve": (ct.Euler, ct.Adjoint("backsolve")),
    "Reversible": (ct.ReversibleHeun, ct.Reversible()),
}


#: what is drawn, and how its axis is called
MEASURED = {
    "saved": "saved for the backward pass",
    "held": "held between the passes",
    "peak": "peak of tensors",
}


def bottleneck(width: int) -> nn.Sequential:
    """The residual of a bottleneck unit: 1x1 to a quarter of the channels, 3x3, 1x1 back."""
    inner = width // 4

    def layer(channels: int, out: int, size: int) -> list[nn.Module]:
        norm = nn.GroupNorm(math.gcd(8, channels), channels)
        conv = nn.Conv2d(channels, out, size, padding=size // 2, bias=False)
        return [norm, nn.ReLU(), conv]

    return nn.Sequential(*layer(width, inner, 1), *layer(inner, inner, 3), *layer(inner, width, 1))


def network(name: str, steps: int, size: Size) -> nn.Sequential:
    """A first layer, then a block with the solver of this name, or a ResNet."""
    first = nn.Conv2d(3, size.width, 1)
    if name == "ResNet":
        return nn.Sequential(first, *(Residual(bottleneck(size.width)) for _ in range(steps)))
    basis = ct.Fourier(size.order, period=2 * math.pi)
    block = ct.ODEBlock(bottleneck(size.width), basis, METHODS[name][0](steps=steps))
    return nn.Sequential(first, block)


@dataclass(frozen=True)
class Memory(Study):
    """Bytes over the number of steps, for every gradient method and a ResNet."""

    def perform(self, here: Circumstances) -> tuple[list[str], dict[str, Any]]:
        size = SIZES[here.scale]
        torch.manual_seed(here.seed)
        x = torch.randn(size.batch, 3, size.side, size.side)
        names = [*METHODS, "ResNet"]
        found: dict[str, list[dict[str, int]]] = {name: [] for name in names}
        for i, steps in enumerate(size.steps):
            for j, name in enumerate(names):
                methods = None if name == "ResNet" else [METHODS[name][1]]
                report = ct.memory(network(name, steps, size), x, methods=methods)
                (row,) = report.rows
                if row.refusal is not None:
                    raise ct.SolveError(f"{name} with {steps} steps: {row.refusal}")
                found[name].append(
                    {
                        "steps": steps,
                        "parameters": report.parameters,
                        "optimizer": report.optimizer or 0,
                        "saved": row.saved,
                        "held": row.held,
                        "peak": row.peak,
                    }
                )
                done = i * len(names) + j + 1
                note = f"{name}, {steps} steps: {readable_bytes(row.saved)}"
                here.watch(Progress("measuring", done, len(size.steps) * len(names), note))
        write_whole(here.folder / "memory.csv", as_csv(found).encode())
        growth: dict[str, dict[str, float]] = {}
        for key, what in MEASURED.items():
            lines = {name: [row[key] for row in rows] for name, rows in found.items()}
            figure = plot.memory_growth(size.steps, lines, reference="ResNet", ylabel=what)
            write_figure(here.folder / f"{key}.png", figure)
            growth[key] = {name: values[-1] / values[0] for name, values in lines.items()}
        weights = sum(p.numel() for p in bottleneck(size.width).parameters())
        facts = {
            "size": vars(size) | {"steps": list(size.steps)},
            "weights_of_the_field": weights,
            "measured": found,
            "growth": growth,
        }
        return [
            f"A bottleneck residual field of {weights:,} weights ({readable_bytes(4 * weights)}), "
            f"each a trigonometric polynomial of order {size.order}; {size.batch} x {size.width} x "
            f"{size.side} x {size.side} numbers of state. Euler steps, for Reversible those of "
            "ReversibleHeun; the ResNet has as many units, each with weights of its own. Saved "
            "is what autograd keeps for the backward pass, held what all tensors take between the "
            "passes, peak the most they take, gradients included; none has parameters or input.",
            table(head_of(size.steps), rows_of(found)),
            sentence(size.steps, growth["saved"]),
            f"What is held grows by {factors(growth['held'])}; the peak grows by "
            f"{factors(growth['peak'])}. The weights of all steps together would take "
            f"{readable_bytes(4 * weights * size.steps[-1])} at {size.steps[-1]} steps: back-"
            "propagation needs them all, the other gradients read a few steps' at a time.",
        ], facts


def head_of(steps: tuple[int, ...]) -> list[str]:
    """The columns of the table."""
    measured = [
        title
        for what in MEASURED
        for title in (*(f"{what}, {n} steps" for n in (steps[0], steps[-1])), "growth")
    ]
    return ["model", "parameters", "state of Adam", *measured]


def rows_of(found: dict[str, list[dict[str, int]]]) -> list[tuple[str, ...]]:
    """The table: parameters and optimizer at the most steps."""
    rows: list[tuple[str, ...]] = []
    for name, measured in found.items():
        first, last = measured[0], measured[-1]
        rows.append(
            (
                name,
                readable_bytes(last["parameters"]),
                readable_bytes(last["optimizer"]),
                *(
                    cell
                    for key in MEASURED
                    for cell in (
                        readable_bytes(first[key]),
                        readable_bytes(last[key]),
                        f"{last[key] / first[key]:.1f}",
                    )
                ),
            )
        )
    return rows


def sentence(steps: tuple[int, ...], growth: dict[str, float]) -> str:
    """How much more is saved at the most steps than at the fewest."""
    level = [name for name, ratio in growth.items() if ratio < 1.05]
    flat = f"{' and '.join(level)} do not grow" if level else "none of them stays level"
    return (
        f"From {steps[0]} to {steps[-1]} steps, {steps[-1] / steps[0]:g} times as many, what is "
        f"saved for the backward pass grows by {factors(growth)}: {flat}."
    )


def factors(growth: dict[str, float]) -> str:
    """Each method with its factor, the largest first."""
    return ", ".join(
        f"{ratio:.1f} ({name})" for name, ratio in sorted(growth.items(), key=lambda g: -g[1])
    )


def as_csv(found: dict[str, list[dict[str, int]]]) -> str:
    """Every measurement, one line each."""
    columns = ("steps", "parameters", "optimizer", *MEASURED)
    lines = [(name, *(row[c] for c in columns)) for name, rows in found.items() for row in rows]
    return csv_text(("model", *columns), lines)


STUDIES = (
    Memory(
        "nanode/memory",
        "Bytes of parameters, optimizer and activations over 1 to 200 steps, for every gradient",
        {"smoke": "seconds", "laptop": "minutes on one thread", "full": "an hour, 8 GB"},
    ),
)
