"""The models of the demonstration: their variants, the table and the figures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import nn

import continua as ct
from continua import plot

FIGURES = ("accuracy.png", "weights.png", "variance.png")


@dataclass(frozen=True)
class Variant:
    """The trained network in another basis and with another solver; its name is its folder."""

    name: str
    series: str
    basis: ct.Basis
    solver: ct.Euler | ct.Midpoint | ct.RK4


VARIANTS = (
    Variant("constant4", "buckets, 8 Euler steps", ct.PiecewiseConstant(4), ct.Euler(steps=8)),
    Variant("constant2", "buckets, 8 Euler steps", ct.PiecewiseConstant(2), ct.Euler(steps=8)),
    Variant("constant1", "buckets, 8 Euler steps", ct.PiecewiseConstant(1), ct.Euler(steps=8)),
    Variant(
        "constant4-short", "buckets, K Euler steps", ct.PiecewiseConstant(4), ct.Euler(steps=4)
    ),
    Variant(
        "constant2-short", "buckets, K Euler steps", ct.PiecewiseConstant(2), ct.Euler(steps=2)
    ),
    Variant("constant4-rk4", "buckets, 2 RK4 steps", ct.PiecewiseConstant(4), ct.RK4(steps=2)),
    Variant("linear4", "hats, 8 Euler steps", ct.PiecewiseLinear(4), ct.Euler(steps=8)),
    Variant("linear2", "hats, 8 Euler steps", ct.PiecewiseLinear(2), ct.Euler(steps=8)),
    Variant("chebyshev3", "Chebyshev, 8 Euler steps", ct.Chebyshev(3), ct.Euler(steps=8)),
)
HALF = "constant4"


@dataclass(frozen=True)
class Row:
    """One model of the table.

    Attributes:
        name: its folder.
        basis: of its weights and state.
        size: the number of basis functions, K.
        solver: the scheme.
        steps: of the scheme, per block.
        parameters: of the whole network.
        correct: held-out images that it classifies correctly.
        accuracy: their share.
        milliseconds: per batch, the median.
        parameter_ratio: relative to the source.
        accuracy_change: relative to the source, in points.
        latency_ratio: relative to the source.
    """

    name: str
    basis: str
    size: int
    solver: str
    steps: int
    parameters: int
    correct: int
    accuracy: float
    milliseconds: float
    parameter_ratio: float
    accuracy_change: float
    latency_ratio: float


def table(
    models: Mapping[str, nn.Module],
    correct: Mapping[str, int],
    milliseconds: Mapping[str, float],
    held_out: int,
) -> tuple[Row, ...]:
    """One row per model, the source first."""
    parameters = {n: sum(p.numel() for p in m.parameters()) for n, m in models.items()}
    rows = []
    for name, model in models.items():
        block = next(m for m in model.modules() if isinstance(m, ct.ODEBlock))
        basis = next(iter(block.expansion.weights.values()))
        rows.append(
            Row(
                name=name,
                basis=repr(basis),
                size=basis.size,
                solver=type(block.solver).__name__,
                steps=block.solver.steps or 0,
                parameters=parameters[name],
                correct=correct[name],
                accuracy=correct[name] / held_out,
                milliseconds=round(milliseconds[name], 3),
                parameter_ratio=round(parameters[name] / parameters["source"], 4),
                accuracy_change=round(100 * (correct[name] - correct["source"]) / held_out, 4),
                latency_ratio=round(milliseconds[name] / milliseconds["source"], 4),
            )
        )
    return tuple(rows)


def figures(
    models: Mapping[str, nn.Module], rows: tuple[Row, ...], held_out: int
) -> dict[str, plot.Figure]:
    """Accuracy over size, weights over depth, running variance over depth."""
    by_name = {row.name: row for row in rows}

    def measured(name: str, series: str) -> plot.Measurement:
        row = by_name[name]
        return plot.Measurement(series, row.size, row.parameters, row.accuracy)

    blocks = {name: model.get_submodule("block2") for name, model in models.items()}
    source = blocks["source"]
    assert isinstance(source, ct.ODEBlock)
    shown = {
        by_name[name].basis: block
        for name, block in blocks.items()
        if name in (HALF, "linear4", "chebyshev3") and isinstance(block, ct.ODEBlock)
    }
    label = f"{by_name['source'].basis}, trained"
    return dict(
        zip(
            FIGURES,
            (
                plot.sizes(
                    measured("source", "source: 8 buckets, 8 Euler steps"),
                    [measured(v.name, v.series) for v in VARIANTS],
                    images=held_out,
                ),
                plot.weights(source, shown, label=label),
                plot.state(source, shown, label=label),
            ),
            strict=True,
        )
    )
