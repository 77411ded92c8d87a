"""Descent in the functions of depth (theorem 1), against descent in their coefficients."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import continua as ct
from continua import plot
from continua.basis import quadrature
from continua.train import Progress

from .._output import write_figure
from .._study import Circumstances, Study, table
from ._reflection import mlp

STEPS = {"smoke": 1, "laptop": 240, "full": 1000}
STARTS = {"smoke": 8, "laptop": 32, "full": 256}
HIDDEN = 16
#: one for every basis, its size and the two gradients, so that nothing else differs
RATE = 0.1

#: by family and size: a well-known one each that is local, orthogonal and badly conditioned
FAMILIES: dict[str, dict[int, ct.Basis]] = {
    "buckets": {k: ct.PiecewiseConstant(k) for k in (2, 4, 8, 16)},
    "Fourier": {2 * k + 1: ct.Fourier(k) for k in (1, 2, 4)},
    "monomials": {k: ct.Polynomial(k) for k in (2, 4, 8)},
}
METHODS = ("plain", "functional")


def eight(s: Tensor) -> Tensor:
    """A figure of eight, once per unit of depth; no constant field can follow it."""
    return torch.stack([torch.cos(2 * math.pi * s), torch.sin(4 * math.pi * s)], -1)


def cost(s: Tensor, z: Tensor) -> Tensor:
    """The squared distance to it."""
    return (eight(s) - z).square().sum(1)


def made(basis: ct.Basis, seed: int) -> ct.ODEBlock:
    """The same constant functions for every basis, in double precision."""
    torch.manual_seed(seed)
    # Double, since the Gram matrix of eight monomials has a condition of 1e10.
    return ct.ODEBlock(mlp(2, HIDDEN, 2), basis, ct.RK4(steps=16)).double()


def objective(block: ct.ODEBlock, x: Tensor) -> Tensor:
    """The integral loss."""
    found = block.solve(x, running_cost=cost).cost
    assert found is not None
    return found.mean()


def descend(
    block: ct.ODEBlock, x: Tensor, steps: int, *, functional: bool, name: str, here: Circumstances
) -> list[float]:
    """Gradient descent, nothing more; the losses before each step and after the last."""
    optimizer = torch.optim.SGD(block.parameters(), lr=RATE)
    values = []
    for step in range(steps):
        optimizer.zero_grad()
        value = objective(block, x)
        torch.autograd.backward(value)
        if functional:
            ct.project_gradient(block)
        optimizer.step()
        values.append(float(value.detach()))
        here.watch(Progress(name, step + 1, steps, f"loss {values[-1]:.3g}"))
    with torch.no_grad():
        return [*values, float(objective(block, x))]


def length(block: ct.ODEBlock) -> float:
    """The norm in the mean square of the functions whose coefficients the gradients are."""
    total = 0.0
    for name, basis in block.expansion.weights.items():
        stack = block.field.get_parameter(name).grad
        assert stack is not None
        flat = stack.flatten(1)
        total += float((flat * (ct.gram(basis, basis) @ flat)).sum())
    return math.sqrt(total)


def first_steps(basis: ct.Basis, x: Tensor, seed: int) -> dict[str, float]:
    """How far the functions move in the first step, over the rate."""
    block = made(basis, seed)
    torch.autograd.backward(objective(block, x))
    plain = length(block)
    ct.project_gradient(block)
    return {"plain": plain, "functional": length(block)}


def whole_length(x: Tensor, seed: int) -> float:
    """The norm of the functional gradient itself, which no basis has shortened."""
    block = made(ct.Constant(), seed)
    s, w = quadrature(ct.Legendre(24))
    found = ct.functional_gradient(
        block, x, lambda z: 0 * z.sum(), s, running_cost=lambda s, z: cost(s, z) / len(z)
    )
    return float((w @ found.norm.square()).sqrt())


def condition(basis: ct.Basis) -> float:
    """Of the Gram matrix."""
    return float(torch.linalg.cond(ct.gram(basis, basis)))


def sentences(losses: Mapping[str, Mapping[str, Mapping[int, float]]], steps: int) -> list[str]:
    """What the losses after the last step say, by family, method and size."""
    buckets = losses["buckets"]
    small, large = min(buckets["plain"]), max(buckets["plain"])
    finest = {
        family: found["functional"][max(found["functional"])] for family, found in losses.items()
    }
    apart = max(finest.values()) / min(finest.values())
    coarse = {family: found["plain"][max(found["plain"])] for family, found in losses.items()}
    before = max(coarse.values()) / min(coarse.values())
    return [
        f"The plain gradient of a bucket shrinks like 1/K: after {steps} steps at the same rate "
        f"the loss is {buckets['plain'][small]:.3f} with {small} buckets and "
        f"{buckets['plain'][large]:.3f} with {large}. By the functional gradient it is "
        f"{buckets['functional'][small]:.3f} and {buckets['functional'][large]:.3f}"
        + (
            ": the rate serves every size, and more functions of depth help."
            if buckets["functional"][large] < buckets["functional"][small]
            else "."
        ),
        "The largest bases of the three families differ by a factor of "
        f"{apart:.2f} in loss by the functional gradient ("
        + ", ".join(f"{family} {loss:.3f}" for family, loss in finest.items())
        + f") and of {before:.2f} by the plain one: "
        + (
            "functional descent hardly depends on the basis once it is large enough, plain descent "
            "does."
            if apart < 1.2 < before
            else "at this length of training that does not tell them apart."
        ),
    ]


@dataclass(frozen=True)
class FunctionalDescent(Study):
    """One flow from the same start in ten bases, by two gradients at one rate."""

    def perform(self, here: Circumstances) -> tuple[list[str], dict[str, Any]]:
        generator = torch.Generator().manual_seed(here.seed)
        drawn = torch.randn(STARTS[here.scale], 2, generator=generator, dtype=torch.float64)
        x = torch.tensor([1.0, 0.0], dtype=torch.float64) + 0.3 * drawn
        steps = STEPS[here.scale]
        rows: list[tuple[object, ...]] = []
        panels: dict[str, dict[str, list[float]]] = {
            f"{family}, {method}": {} for method in METHODS for family in FAMILIES
        }
        facts: dict[str, Any] = {"rate": RATE, "steps": steps}
        losses: dict[str, dict[str, dict[int, float]]] = {}
        for family, bases in FAMILIES.items():
            losses[family] = {method: {} for method in METHODS}
            for size, basis in bases.items():
                first = first_steps(basis, x, here.seed)
                for method in METHODS:
                    name = f"{family}, K = {size}, {method}"
                    values = descend(
                        made(basis, here.seed), x, steps,
                        functional=method == "functional", name=name, here=here,
                    )  # fmt: skip
                    panels[f"{family}, {method}"][f"K = {size}"] = values
                    losses[family][method][size] = values[-1]
                row = (
                        family,
                        size,
                        f"{condition(basis):.2g}",
                        *(f"{first[method]:.3f}" for method in METHODS),
                        *(f"{losses[family][method][size]:.4f}" for method in METHODS),
                )  # fmt: skip
                rows.append(row)
                facts[f"{family} {size}"] = {
                    "condition": condition(basis),
                    "first_step": first,
                    "loss": {method: losses[family][method][size] for method in METHODS},
                }
        whole = whole_length(x, here.seed)
        facts["functional_gradient_norm"] = whole
        start = panels["buckets, plain"]["K = 2"][0]
        facts["loss_at_start"] = start
        write_figure(here.folder / "losses.png", plot.loss_panels(panels))
        head = (
            "basis", "K", "condition of the Gram matrix", "first step, plain",
            "first step, functional", "loss, plain", "loss, functional",
        )  # fmt: skip
        return [
            f"A field of {HIDDEN} hidden units follows a figure of eight, by an integral loss and "
            f"{steps} steps of gradient descent at the rate {RATE:g}. All start from the same "
            f"constant functions, with a loss of {start:.3f}. The first steps are the lengths, in "
            "the mean square over depth and over the rate, by which the functions move; the "
            f"functional gradient itself has the length {whole:.3f}.",
            table(head, rows),
            *sentences(losses, steps),
        ], facts


STUDIES = (
    FunctionalDescent(
        "dissecting/functional-gradient",
        "Descent in functions of depth against descent in their coefficients",
        {"smoke": "seconds", "laptop": "40 seconds of one core", "full": "half an hour"},
    ),
)
