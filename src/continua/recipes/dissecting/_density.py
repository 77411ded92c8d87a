"""Densities in the plane, with and without classes, by two traces (section 6)."""

from __future__ import annotations

import itertools
import math
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.distributions import Independent, Normal
from torch.nn.functional import one_hot

import continua as ct
from continua import plot
from continua.data import Dataset, Part, load
from continua.train import Progress

from .._output import write_figure
from .._study import Circumstances, Study, table
from .._toy import train_steps
from ._truths import NOISE, log_board, log_moons

Trace = Literal["exact", "hutchinson"]
Extent = tuple[float, float, float, float]

STEPS = {"smoke": 1, "laptop": 400, "full": 5000}
BATCH = {"smoke": 16, "laptop": 256, "full": 1024}
SAMPLES = {"smoke": 64, "laptop": 8192, "full": 32768}
#: points of a grid along each axis; odd, so that every second one is a grid too
GRID = {"smoke": 21, "laptop": 121, "full": 301}
PROBES = {"smoke": 2, "laptop": 20, "full": 100}
HIDDEN = 64
SHOWN = 1000
BASIS = ct.PiecewiseConstant(4)
#: a coarse grid alone can be flattered by its own errors, so all numbers come from the other
TRAINING, MEASURING = ct.RK4(steps=8), ct.Dopri5(1e-5, 1e-5)
TRACES: tuple[Trace, ...] = ("exact", "hutchinson")
#: beyond the data on all sides, where a flow may have left a little
EXTENTS: Mapping[str, Extent] = {
    "moons": (-3.0, 4.0, -3.0, 3.5),
    "checkerboard": (-4.0, 4.0, -4.0, 4.0),
}
#: what the figures show
VIEWS: Mapping[str, Extent] = {
    "moons": (-1.8, 2.8, -2.05, 2.55),
    "checkerboard": (-2.8, 2.8, -2.8, 2.8),
}
TRUTHS = {"moons": log_moons, "checkerboard": log_board}
NOISES = {"moons": NOISE, "checkerboard": 0.0}


def flow_of(classes: int, trace: Trace) -> ct.ContinuousFlow:
    """A flow that sees its class as a one-hot vector, or none."""
    net = nn.Sequential(
        nn.Linear(2 + classes, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, HIDDEN), nn.Tanh(),
        nn.Linear(HIDDEN, 2),
    )  # fmt: skip
    return ct.ContinuousFlow(
        ct.DataControl(net) if classes else net,
        Independent(Normal(torch.zeros(2), torch.ones(2)), 1),
        trace=trace,
        basis=BASIS,
        solver=TRAINING,
        context="given" if classes else "none",
    )


def mass(log_prob: Callable[[Tensor], Tensor], extent: Extent, points: int) -> tuple[float, float]:
    """The integral over a part of the plane, and how far half of the points are from it."""
    left, right, bottom, top = extent
    across, up = torch.linspace(left, right, points), torch.linspace(bottom, top, points)
    grid = torch.stack(torch.meshgrid(across, up, indexing="xy"), -1).reshape(-1, 2)
    with torch.no_grad():
        p = torch.cat([log_prob(part) for part in torch.split(grid, 4096)]).double().exp()
    p = p.reshape(points, points)

    def integral(every: int) -> float:
        rows = torch.trapezoid(p[::every, ::every], across[::every].double())
        return float(torch.trapezoid(rows, up[::every].double()))

    return integral(1), abs(integral(1) - integral(2))


def codes_of(part: Part, conditional: bool) -> Tensor | None:
    """The classes of all points as one-hot vectors, for a flow that sees them."""
    return one_hot(part.targets, 2).float() if conditional else None


def of_class(flow: ct.ContinuousFlow, code: Tensor | None) -> Callable[[Tensor], Tensor]:
    """The log-density of one class."""
    return lambda x: flow.log_prob(x, None if code is None else code.expand(len(x), -1))


@dataclass(frozen=True)
class Trained:
    """A flow after training, and the same one that estimates its trace.

    Attributes:
        flow: with the exact trace, whatever it was trained with.
        estimating: with Hutchinson's estimate.
        seconds: of one step of training.
    """

    flow: ct.ContinuousFlow
    estimating: ct.ContinuousFlow
    seconds: float


def trained(
    data: Dataset, codes: Tensor | None, trace: Trace, name: str, here: Circumstances
) -> Trained:
    """Maximum likelihood on batches of the training part.

    Args:
        data: the set.
        codes: for each training point its one-hot vector; None for a flow without classes.
        trace: to train with.
        name: to show.
        here: circumstances.
    """
    torch.manual_seed(here.seed)
    generator = torch.Generator().manual_seed(here.seed)
    classes = 0 if codes is None else codes.shape[1]
    flow = flow_of(classes, trace)
    x = data.train.inputs

    def loss(step: int) -> Tensor:
        drawn = torch.randint(0, len(x), (BATCH[here.scale],), generator=generator)
        return -flow.log_prob(x[drawn], None if codes is None else codes[drawn]).mean()

    ends = [time.perf_counter()]

    def watch(now: Progress) -> None:
        ends.append(time.perf_counter())
        here.watch(now)

    train_steps(flow, loss, STEPS[here.scale], name=name, anneal=True, watch=watch)
    # The median: the first step of all pays for what torch loads when it is first used.
    seconds = statistics.median(b - a for a, b in itertools.pairwise(ends))
    exact, estimating = (flow_of(classes, kind) for kind in TRACES)
    for twin in (exact, estimating):
        twin.load_state_dict(flow.state_dict())
        twin.block.solver = MEASURING
    return Trained(exact, estimating, seconds)


def draw(
    here: Circumstances,
    data: Dataset,
    flow: ct.ContinuousFlow,
    code: Tensor | None,
    label: int,
) -> None:
    """The density, samples of it, and as many held-out points."""
    x = data.test.inputs
    if code is not None:
        x = x[data.test.targets == label]
    x = x[:SHOWN]
    samples = flow.sample((len(x),), None if code is None else code[None]).reshape(-1, 2)
    figure = plot.density(
        of_class(flow, code), samples, extent=VIEWS[data.name], data=x, resolution=GRID[here.scale]
    )
    slug = data.name if code is None else f"{data.name}-class-{label}"
    write_figure(here.folder / f"{slug}.png", figure)


@dataclass(frozen=True)
class Densities(Study):
    """Two sets, a flow with classes and one without, trained with either trace."""

    def perform(self, here: Circumstances) -> tuple[list[str], dict[str, Any]]:
        rows: list[tuple[object, ...]] = []
        facts: dict[str, Any] = {}
        for name, extent in EXTENTS.items():
            data = load(
                name, seed=here.seed, validation=0.0, n=SAMPLES[here.scale], noise=NOISES[name]
            )
            facts[name] = {}
            for kind in ("unconditional", "conditional"):
                best = float(TRUTHS[name](data.test, kind == "conditional").mean())
                facts[name][kind] = {"best": best}
                for trace in TRACES:
                    title = f"{name}, {kind}, {trace}"
                    found = self.measure(here, data, kind == "conditional", trace, extent, title)
                    facts[name][kind][trace] = found
                    rows.append(
                        (
                            name, kind, trace,
                            f"{found['log_likelihood']:.3f} ± {found['standard_error']:.3f}",
                            f"{best:.3f}",
                            ", ".join(f"{m:.4f}" for m in found["masses"]),
                            ", ".join(f"{m:.4f}" for m in found["masses_by_estimate"]),
                            f"{found['noise']:.3f}",
                            f"{1000 * found['seconds_per_step']:.0f} ms",
                        )
                    )  # fmt: skip
        head = (
            "data", "flow", "trained with", "held-out log-likelihood", "of the true density",
            "integral", "integral by the estimate", "noise of the estimate", "time per step",
        )  # fmt: skip
        return [table(head, rows), *sentences(facts)], facts

    @staticmethod
    def measure(
        here: Circumstances,
        data: Dataset,
        conditional: bool,
        trace: Trace,
        extent: Extent,
        title: str,
    ) -> dict[str, Any]:
        """Train one flow; its numbers, and the figures of the one with the exact trace."""
        held = data.test
        codes = codes_of(held, conditional)
        done = trained(data, codes_of(data.train, conditional), trace, title, here)
        x, few = held.inputs[:200], None if codes is None else codes[:200]
        with torch.no_grad():
            likelihood = done.flow.log_prob(held.inputs, codes)
            probes = [done.estimating.log_prob(x, few) for _ in range(PROBES[here.scale])]
        found: dict[str, Any] = {
            "log_likelihood": float(likelihood.mean()),
            "standard_error": float(likelihood.std()) / math.sqrt(len(likelihood)),
            "noise": float(torch.stack(probes).std(0).mean()),
            "seconds_per_step": done.seconds,
            "masses": [],
            "grid_errors": [],
            "masses_by_estimate": [],
        }
        for k, code in enumerate(torch.eye(2) if conditional else [None]):
            whole, error = mass(of_class(done.flow, code), extent, GRID[here.scale])
            found["masses"].append(whole)
            found["grid_errors"].append(error)
            by_estimate, _ = mass(of_class(done.estimating, code), extent, GRID[here.scale])
            found["masses_by_estimate"].append(by_estimate)
            if trace == "exact":
                draw(here, data, done.flow, code, k)
        return found


def reached(kind: Mapping[str, Any]) -> float:
    """The held-out log-likelihood of the flow trained with the exact trace."""
    return float(kind["exact"]["log_likelihood"])


def sentences(facts: Mapping[str, Any]) -> list[str]:
    """What the numbers say."""
    every = [kinds[kind][t] for kinds in facts.values() for kind in kinds for t in TRACES]
    pairs = [(k["exact"], k["hutchinson"]) for kinds in facts.values() for k in kinds.values()]
    off = max(abs(m - 1) for found in every for m in found["masses"])
    grid = max(e for found in every for e in found["grid_errors"])
    estimated = [m for found in every for m in found["masses_by_estimate"]]
    noises = [found["noise"] for found in every]
    change = [b["log_likelihood"] - a["log_likelihood"] for a, b in pairs]
    times = [b["seconds_per_step"] / a["seconds_per_step"] for a, b in pairs]
    gains = ", ".join(
        f"{reached(kinds['conditional']) - reached(kinds['unconditional']):.3f} on {name} "
        f"({kinds['conditional']['best'] - kinds['unconditional']['best']:.3f})"
        for name, kinds in facts.items()
    )
    gaps = ", ".join(
        f"{kinds[kind]['best'] - reached(kinds[kind]):.3f} on {name} ({kind})"
        for name, kinds in facts.items()
        for kind in kinds
    )
    return [
        f"All numbers are nats per held-out point, by {MEASURING!r} and the exact trace, whatever "
        f"a flow was trained with. To the true density the flows lack {gaps}. Knowing the class "
        f"gains {gains}; in brackets what the true density gains.",
        f"With the exact trace the densities integrate to 1 within {off:.1g}, where half of the "
        f"grid's points already agree within {grid:.1g}. One Hutchinson probe per point has a "
        f"standard deviation of {min(noises):.2f} to {max(noises):.2f} nats; it is unbiased in "
        f"the logarithm and so not in the density, whose integrals come out between "
        f"{min(estimated):.3f} and {max(estimated):.3f}.",
        "After as many steps with the estimate the log-likelihood differs from that of the exact "
        f"trace by {min(change):+.3f} to {max(change):+.3f} nats, and a step takes "
        f"{min(times):.2f} to {max(times):.2f} of the time: in two dimensions the estimate saves "
        "one derivative of two.",
    ]


STUDIES = (
    Densities(
        "dissecting/density",
        "Densities of two moons and a checkerboard, with and without classes, by two traces",
        {"smoke": "seconds", "laptop": "five minutes on one core", "full": "a few hours"},
    ),
)
