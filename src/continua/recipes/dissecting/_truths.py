"""The densities that two of the toy sets are drawn from."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from continua.data import Part

#: of the moons
NOISE = 0.1
POINTS = 500


def log_moons(part: Part, conditional: bool) -> Tensor:
    """The log-density of two noisy half circles, at the points of a part, `[B]`.

    Args:
        part: points and the moon of each.
        conditional: that of the point's own moon, or of both together.
    """
    angle = math.pi * (torch.arange(POINTS, dtype=torch.float64) + 0.5) / POINTS
    arc = torch.stack([angle.cos(), angle.sin()], 1)
    moons = (arc, torch.tensor([1.0, 0.5], dtype=torch.float64) - arc)
    scale = math.log(POINTS) + math.log(2 * math.pi * NOISE**2)
    each = torch.stack(
        [
            torch.logsumexp(-torch.cdist(part.inputs.double(), m).square() / (2 * NOISE**2), 1)
            for m in moons
        ]
    )  # [2, B]
    if conditional:
        return each[part.targets, torch.arange(len(part))] - scale
    return torch.logsumexp(each, 0) - math.log(2) - scale


def log_board(part: Part, conditional: bool) -> Tensor:
    """The log-density of a checkerboard without noise: the same on all its squares, `[B]`.

    Args:
        part: points on the board.
        conditional: that of the four squares of a point's class, or of all eight.
    """
    return torch.full((len(part),), -math.log(4 if conditional else 8), dtype=torch.float64)
