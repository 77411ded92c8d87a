"""Do higher-order integrators help compression? Section 6 of the paper."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from continua import plot
from continua.train import Training

from .._grid import Grid
from .._image_setup import ImageSetup
from .._measure import Sweep, measure
from .._output import write_figure
from .._recipe import Recipe
from .._setup import Scale
from .._study import Circumstances, Study, percent, table

SCHEMES = ("Euler", "Midpoint", "RK4")
STEPS = (1, 2, 3, 4, 6, 8, 12, 16)
FEW = (4, 8)
#: basis functions and steps double before these epochs
REFINED: dict[Scale, tuple[int, ...]] = {"smoke": (1, 2), "laptop": (2, 5), "full": (20, 40)}

small = Recipe(
    "stateful/integrators",
    "a small network with 4 buckets and 4 steps of another scheme each",
    {
        "smoke": ImageSetup(
            data="digits", stages=1, width=8, basis="PiecewiseConstant(4)", epsilon=4.0,
            samples=128, training=Training(epochs=3, batch_size=64, warmup=0.5),
        ),
        "laptop": ImageSetup(
            data="mnist", stages=2, width=8, basis="PiecewiseConstant(4)", epsilon=4.0, pad=2,
            samples=6_000, channels_last=True,
            training=Training(epochs=8, batch_size=32, learning_rate=0.05, warmup=1),
        ),
        "full": ImageSetup(
            data="cifar10", width=16, basis="PiecewiseConstant(4)", epsilon=4.0, pad=4,
            mirror=True, channels_last=True,
            training=Training(epochs=60, warmup=5),
        ),
    },
    {"smoke": "seconds", "laptop": "minutes each", "full": "hours; use a GPU"},
)  # fmt: skip


@dataclass(frozen=True)
class Integrators(Study):
    """The same network trained with three schemes, then run with every scheme and step count.

    Attributes:
        refined: whether each training starts with one basis function and one step.
    """

    refined: bool = False

    def perform(self, here: Circumstances) -> tuple[list[str], dict[str, Any]]:
        panels: dict[str, list[plot.Trial]] = {}
        rows, compressed = [], []
        facts: dict[str, Any] = {}
        samples = 0
        for scheme in SCHEMES:
            sweep, result = _swept(here, scheme, self.refined)
            samples = sweep.samples
            own = [t for t in sweep.trials if (t.basis, t.size) == ("PiecewiseConstant", 4)]
            panels[f"trained with {scheme}, 4 steps"] = [sweep.source, *own]
            spread = {
                s: [t.accuracy for t in (sweep.source, *own) if t.scheme == s and t.steps >= 4]
                for s in SCHEMES
            }
            rows.append(
                (
                    f"{scheme}",
                    percent(sweep.source.accuracy),
                    *(f"{percent(min(v))} to {percent(max(v))}" for v in spread.values()),
                )
            )
            sized = {
                (t.basis, t.size): t.accuracy
                for t in sweep.trials
                if (t.scheme, t.steps) == (scheme, 4) and t.size < 4
            }
            compressed.append((scheme, *(percent(a) for a in sized.values())))
            heads = [f"`{basis}({k})`" for basis, k in sized]
            facts[scheme.lower()] = {
                "result": result,
                "trials": [vars(t) for t in (sweep.source, *sweep.trials)],
            }
        write_figure(here.folder / "steps.png", plot.convergence(panels, samples=samples))
        losses = {
            scheme: trials[0].accuracy - min(t.accuracy for t in trials if t.steps >= 4)
            for scheme, trials in zip(SCHEMES, panels.values(), strict=True)
        }
        facts["largest_loss_at_four_steps_or_more"] = losses
        return [
            "Accuracy with the scheme it was trained with, and the range over 4 to "
            f"{max(FEW if self.refined else STEPS)} steps of each scheme, on {samples:,} images, "
            "without retraining:",
            table(("trained with", "as trained", *SCHEMES), rows),
            _verdict(losses),
            plot.describe_convergence(panels),
            "Fewer basis functions, 4 steps of the scheme it was trained with, by projection:",
            table(("trained with", *heads), compressed),
        ], facts


def _swept(here: Circumstances, scheme: str, refined: bool) -> tuple[Sweep, dict[str, Any]]:
    """Train with one scheme, then measure with all of them; and the result of the training."""
    settings = [f"solver={scheme}(steps=4)"]
    if refined:
        # As the other recipes that refine. In a single step of length 4 the stages see statistics
        # so different that those of a bucket, which are one for all its stages, fit none of them.
        settings = [
            f"solver={scheme}(steps=1)", "basis=PiecewiseConstant(1)", "epsilon=2.0",
            f"refine_epochs={REFINED[here.scale]}", "schedule=one-cycle",
        ]  # fmt: skip
    run, result = here.train(small, scheme.lower(), settings)
    _, task = run.load()
    grid = Grid(
        bases=("PiecewiseConstant", "PiecewiseLinear"),
        sizes=(1, 2, 3),
        schemes=SCHEMES,
        steps=STEPS if not refined else FEW,
        methods=("project",),
    )
    sweep, _ = measure(
        run.model(), task, grid, rounds=1, batch=8,
        channels_last=run.setup.channels_last, watch=here.watch,
    )  # fmt: skip
    return sweep, result


def _verdict(losses: dict[str, float]) -> str:
    holds = losses["RK4"] < losses["Euler"]
    return (
        "Swapping the scheme, or using more steps, costs a network trained with RK4 at most "
        f"{100 * losses['RK4']:.2f} points, one trained with Midpoint "
        f"{100 * losses['Midpoint']:.2f}, and one trained with Euler "
        f"{100 * losses['Euler']:.2f}. That higher-order training makes a network behave like "
        f"an ODE {'holds' if holds else 'does not hold'} here."
    )


STUDIES = (
    Integrators(
        "stateful/integrators",
        "The same network trained with Euler, Midpoint and RK4, then run with every scheme",
        {
            "smoke": "seconds",
            "laptop": "half an hour on two cores",
            "full": "hours; use a GPU",
        },
    ),
    Integrators(
        "stateful/integrators-refined",
        "The same, each refined from one basis function and step while training",
        {
            "smoke": "seconds",
            "laptop": "seven minutes of one core",
            "full": "hours; use a GPU",
        },
        refined=True,
    ),
)
