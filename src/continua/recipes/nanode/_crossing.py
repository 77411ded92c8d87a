"""Crossing: the map h(x) = -x, which no flow on a line is, and a flow in the plane is."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

import continua as ct
from continua import plot

from .._output import write_figure
from .._setup import Scale
from .._study import Circumstances, Study, table
from .._toy import count, train_steps

STEPS: dict[Scale, int] = {"smoke": 3, "laptop": 600, "full": 600}
DEPTHS = [i / 20 for i in range(21)]

#: of the weights that vary with depth
BASIS = ct.Fourier(3, period=2 * math.pi)

LABELS = {
    "line": "line, constant weights",
    "line-nanode": "line, weights of depth",
    "plane": "plane, constant weights, linear",
    "plane-nanode": "plane, weights of depth, linear",
    "augmented": "line with a zero beside it, constant weights, linear",
    "augmented-nanode": "line with a zero beside it, weights of depth, linear",
}


class Crossing(nn.Module):
    """A flow, and the coordinates of its end that are compared with -x.

    Args:
        block: the flow.
        zeros: how many coordinates, zero at first, stand beside x.
    """

    def __init__(self, block: ct.ODEBlock, zeros: int = 0):
        super().__init__()
        self.block = block
        self.augment = ct.ZeroAugment(zeros) if zeros else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        z: Tensor = self.block(self.augment(x))
        return z[:, : x.shape[1]]

    def error(self, x: Tensor) -> Tensor:
        """The mean square of h(x) + x."""
        difference: Tensor = self(x) + x
        return difference.square().mean()


def rotation(angle: float = math.pi) -> ct.ODEBlock:
    r"""The linear flow that turns the plane, by half a turn to -x.

    .. math:: \frac{dz}{ds} = \alpha \begin{pmatrix} 0 & -1 \\ 1 & 0 \end{pmatrix} z, \qquad
              z(1) = \begin{pmatrix} \cos\alpha & -\sin\alpha \\ \sin\alpha & \cos\alpha
              \end{pmatrix} z(0)

    Example:
        >>> rotation()(torch.tensor([[1.0, 2.0]], dtype=torch.float64)).detach().round(decimals=6)
        tensor([[-1., -2.]], dtype=torch.float64)
    """
    field = nn.Linear(2, 2, bias=False).double()
    with torch.no_grad():
        field.weight.copy_(angle * torch.tensor([[0.0, -1.0], [1.0, 0.0]]))
    return ct.ODEBlock(field, solver=ct.Dopri5(1e-9, 1e-9))


def line() -> Tensor:
    """A hundred points from -1 to 1."""
    return torch.linspace(-1, 1, 100).reshape(-1, 1)


def disk() -> Tensor:
    """Five circles of twenty points each."""
    angle = torch.arange(20) * (math.pi / 10)
    circle = torch.stack([angle.cos(), angle.sin()], 1)
    return torch.cat([radius / 5 * circle for radius in range(1, 6)])


def lowest_error(x: Tensor) -> float:
    """The least mean squared error of a non-decreasing h with h(x) = -x as its aim.

    The best non-decreasing fit to falling values is their mean (isotonic regression, whose
    blocks all join).
    """
    return float((x - x.mean()).square().mean())


def models() -> dict[str, tuple[Crossing, Tensor]]:
    """The flows to train, each with its points."""
    solver = ct.RK4(steps=20)

    def mlp() -> nn.Module:
        return nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 1))

    def linear() -> nn.Module:
        return nn.Linear(2, 2, bias=False)

    return {
        "line": (Crossing(ct.ODEBlock(mlp(), solver=solver)), line()),
        "line-nanode": (Crossing(ct.ODEBlock(mlp(), BASIS, solver)), line()),
        "plane": (Crossing(ct.ODEBlock(linear(), solver=solver)), disk()),
        "plane-nanode": (Crossing(ct.ODEBlock(linear(), BASIS, solver)), disk()),
        "augmented": (Crossing(ct.ODEBlock(linear(), solver=solver), zeros=1), line()),
        "augmented-nanode": (Crossing(ct.ODEBlock(linear(), BASIS, solver), zeros=1), line()),
    }


@dataclass(frozen=True)
class Crossings(Study):
    """The map x -> -x by a formula, and by training on the line, in the plane and augmented."""

    def perform(self, here: Circumstances) -> tuple[list[str], dict[str, Any]]:
        torch.manual_seed(here.seed)
        points = disk().double()
        with torch.no_grad():
            exact = float((rotation()(points) + points).abs().max())
        facts: dict[str, Any] = {"rotation_error": exact, "lowest_on_a_line": lowest_error(line())}
        rows = []
        for name, (model, x) in models().items():

            def loss(_: int, model: Crossing = model, x: Tensor = x) -> Tensor:
                return model.error(x)

            train_steps(
                model, loss, STEPS[here.scale], name=LABELS[name], rate=0.03, anneal=True,
                watch=here.watch,
            )  # fmt: skip
            with torch.no_grad():
                facts[name] = float(model.error(x))
                shown = x[::5]
                z = model.block.solve(model.augment(shown), save_at=DEPTHS).z
            labels = (shown[:, 0] > 0).long()
            figure = plot.depth_flow(DEPTHS, z, labels, title=LABELS[name])
            write_figure(here.folder / f"{name}.png", figure)
            rows.append((LABELS[name], count(model), f"{facts[name]:.2g}"))
        half = points.float()[::2]
        flow = rotation().float()
        flow.solver = ct.RK4(steps=20)
        figure = plot.phase_flow(flow, half, (half[:, 0] > 0).long())
        write_figure(here.folder / "rotation.png", figure)
        head = ("flow", "parameters", "mean squared error of h(x) = -x")
        return [table(head, rows), *sentences(facts)], facts


def sentences(facts: dict[str, Any]) -> list[str]:
    """What holds for every flow, and what was measured."""
    low = facts["lowest_on_a_line"]
    measured = {name: facts[name] for name in ("line", "line-nanode")}
    kept = all(error >= low * (1 - 1e-4) for error in measured.values())
    higher = ("plane", "plane-nanode", "augmented", "augmented-nanode")
    solved = [name for name in higher if facts[name] < 1e-2 * low]
    reached = " and ".join(f"{LABELS[name]} ({facts[name]:.1g})" for name in solved) or "none"
    if left := [f"{LABELS[name]} ({facts[name]:.2g})" for name in higher if name not in solved]:
        reached += (
            f"; not {' and '.join(left)}, which can cross too: that is the training, which may "
            "shrink all states to zero on its way and stay there"
        )
    return [
        "Two trajectories that start apart on a line cannot cross: where they met, at one depth "
        "and one state, they would have to go on as one. So the map of a flow on a line never "
        "decreases, and this is so whether or not its weights vary with depth: depth is the same "
        "for all samples and sets no two of them apart. What weights of depth bring is more maps "
        "that do not decrease; h(x) = -x takes one more dimension of the state.",
        f"Of all maps that do not decrease, the mean squared error is at least {low:.4f} here: "
        f"the flows on the line have {measured['line']:.4f} with constant weights and "
        f"{measured['line-nanode']:.4f} with weights of depth, "
        f"{'neither below it' if kept else 'which is below it: the solver is too coarse'}. In the "
        f"plane half a turn is -x: the closed form holds to {facts['rotation_error']:.1g}. Trained "
        f"to less than a hundredth of that bound: {reached}. The weights of "
        "the closed form are constant: the dimension, not the dependence on depth, makes the "
        "difference.",
    ]


STUDIES = (
    Crossings(
        "nanode/crossing",
        "The map x -> -x: on a line by no flow, in the plane by half a turn",
        {"smoke": "seconds", "laptop": "15 seconds of one core", "full": "15 seconds"},
    ),
)
