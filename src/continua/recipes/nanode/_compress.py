"""A trained T-NANODE written in smaller bases, without retraining."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

import continua as ct
from continua import plot
from continua.plot import Trial
from continua.train import Progress, evaluate

from .._output import write_figure
from .._setup import Scale
from .._study import Circumstances, Study, describe_result, percent, table
from ._rows import cifar10, setting, steps_of, waves

ORDERS: dict[Scale, tuple[int, ...]] = {
    "smoke": (2, 0),
    "laptop": (8, 6, 5, 4, 3, 2, 1, 0),
    "full": (9, 8, 7, 6, 5, 4, 3, 2, 1, 0),
}
SIZES: dict[Scale, tuple[int, ...]] = {
    "smoke": (4,),
    "laptop": (4, 6, 8, 12, 16, 20),
    "full": (4, 6, 8, 10, 15, 20),
}

HEAD = (
    "basis", "parameters", "accuracy", "points", "largest change of a weight",
    "largest coefficient",
)  # fmt: skip


def targets(scale: Scale) -> list[ct.Basis]:
    """The bases to write the weights in."""
    # Harmonics of the same period: those of another would be a change, not fewer of them.
    fewer: list[ct.Basis] = [ct.Fourier(order, period=2 * math.pi) for order in ORDERS[scale]]
    buckets = [ct.PiecewiseConstant(size) for size in SIZES[scale]]
    splines = [ct.BSpline(size) for size in SIZES[scale]]
    return [*fewer, *buckets, *splines]


@dataclass(frozen=True)
class CompressNanode(Study):
    """One training, and its projections onto harmonics, buckets and splines."""

    def perform(self, here: Circumstances) -> tuple[list[str], dict[str, Any]]:
        run, result = here.train(cifar10, "trained", waves(10).settings())
        model = run.model()
        _, task = run.load()
        steps = steps_of(cifar10, here.scale)
        scheme = "AsynchronousLeapfrog"
        source = Trial(
            "Fourier", 21, scheme, steps, "source", result["parameters"],
            result["test"]["accuracy"],
        )  # fmt: skip
        bases = targets(here.scale)
        trials: list[Trial] = []
        changes: list[dict[str, Any]] = []
        for i, basis in enumerate(bases):
            small = run.laid_out(ct.compress(model, basis))
            family = type(basis).__name__
            accuracy = evaluate(small, task, "test")["accuracy"]
            errors = [t.error for t in ct.compare(model, small).tensors if t.kind == "weight"]
            trials.append(
                Trial(family, basis.size, scheme, steps, "project", parameters(small), accuracy)
            )
            changes.append({"basis": repr(basis), "error": max(errors), "largest": largest(small)})
            here.watch(Progress("measuring", i + 1, len(bases), f"{basis!r}: {accuracy:.4f}"))
        samples = result["test_samples"]
        figure = plot.pareto(source, trials, samples=samples, what="test accuracy")
        write_figure(here.folder / "accuracy.png", figure)
        rows = [(f"`{waves(10).basis}`, trained", source, "", f"{largest(model):.3g}")]
        rows += [
            (f"`{c['basis']}`", trial, f"{100 * c['error']:.2g} %", f"{c['largest']:.3g}")
            for c, trial in zip(changes, trials, strict=True)
        ]
        cells = [
            (
                name,
                f"{trial.parameters:,}",
                percent(trial.accuracy),
                f"{100 * (trial.accuracy - source.accuracy):+.2f}",
                *more,
            )
            for name, trial, *more in rows
        ]
        return [
            setting(cifar10, here.scale),
            f"{describe_result(result)}.",
            table(HEAD, cells),
            plot.describe_pareto(source, trials),
            explanation(largest(model), changes),
        ], {
            "result": result,
            "trials": [vars(trial) for trial in (source, *trials)],
            "changes": changes,
        }  # fmt: skip


def parameters(model: nn.Module) -> int:
    """How many a model has."""
    return sum(p.numel() for p in model.parameters())


def largest(model: nn.Module) -> float:
    """The largest coefficient of the blocks' weights."""
    blocks = [m for m in model.modules() if isinstance(m, ct.ODEBlock)]
    return float(
        torch.stack([p.detach().abs().max() for b in blocks for p in b.parameters()]).max()
    )


def explanation(before: float, changes: list[dict[str, Any]]) -> str:
    """What the coefficients tell of the harmonics."""
    waves = max(c["largest"] for c in changes if c["basis"].startswith("Fourier"))
    others = max(c["largest"] for c in changes if not c["basis"].startswith("Fourier"))
    return (
        "Changes are relative in the L2 norm, the largest of all weight tensors. Depth covers less "
        "than a sixth of the period 2 pi, so that the harmonics are nearly dependent there: fewer "
        f"of them need coefficients up to {waves:.3g} where the trained ones are up to "
        f"{before:.3g}, and buckets and splines up to {others:.3g}."
    )


STUDIES = (
    CompressNanode(
        "nanode/compress-nanode",
        "A trained T-NANODE-10 in fewer harmonics, in buckets and in splines, without retraining",
        {
            "smoke": "seconds, on the embedded digits",
            "laptop": "a quarter of an hour on two cores",
            "full": "use a GPU",
        },
    ),
)
