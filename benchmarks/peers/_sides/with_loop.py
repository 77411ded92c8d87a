"""Loops written by hand in PyTorch: the least that a fixed grid can cost."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .protocol import Case, Problem, Side, Unsupported, serve
from .torch_fields import Buckets, Field, GalerkinMLP, case, field_of, tensors

# The weights of each evaluation of one step.
Stages = Sequence[list[Tensor]]


def rk4(field: Field, z: Tensor, steps: Sequence[Stages]) -> Tensor:
    """The classical method on equal steps of [0, 1]."""
    f, h = field.evaluate, 1 / len(steps)
    for first, middle, last in steps:
        k1 = f(first, z)
        k2 = f(middle, z + h / 2 * k1)
        k3 = f(middle, z + h / 2 * k2)
        k4 = f(last, z + h * k3)
        z = z + h / 6 * (k1 + 2 * (k2 + k3) + k4)
    return z


def rk38(field: Field, z: Tensor, steps: Sequence[Stages]) -> Tensor:
    """The 3/8 rule, which torchdiffeq calls rk4; not timed, but what it is compared with."""
    f, h = field.evaluate, 1 / len(steps)
    for first, third, two_thirds, last in steps:
        k1 = f(first, z)
        k2 = f(third, z + h / 3 * k1)
        k3 = f(two_thirds, z + h * (k2 - k1 / 3))
        k4 = f(last, z + h * (k1 - k2 + k3))
        z = z + h / 8 * (k1 + 3 * (k2 + k3) + k4)
    return z


def euler(field: Field, z: Tensor, steps: Sequence[Stages]) -> Tensor:
    """Euler's method on equal steps of [0, 1]."""
    h = 1 / len(steps)
    for (first,) in steps:
        z = z + h * field.evaluate(first, z)
    return z


# Each with the depths in a step that its weights are read at, and its evaluations.
METHODS = {"rk4": (rk4, 3, 4), "rk38": (rk38, 4, 4), "euler": (euler, 1, 1)}


def weights(field: Field, steps: int, depths: int) -> list[Stages]:
    """The weights of all evaluations, `depths` in a step; read once, before the loop."""
    if isinstance(field, GalerkinMLP):
        # One product for all depths of a weight; steps share the depth where they meet.
        count = steps * (depths - 1) + 1
        s = torch.linspace(0, 1, count, dtype=field.frequencies.dtype).unsqueeze(1)
        basis = field.basis(s * field.frequencies)
        stacks = [torch.tensordot(basis, stack, 1).unbind() for stack in field.weights()]
        at = [list(found) for found in zip(*stacks, strict=True)]
        return [at[i : i + depths] for i in range(0, count - 1, depths - 1)]
    if isinstance(field, Buckets):
        # The last stage of a step lies on the edge of the next bucket and belongs to this one.
        return [[field.of(field.bucket((i + 0.5) / steps))] * depths for i in range(steps)]
    return [[field.at(0.0)] * depths] * steps


def solve(field: Field, x: Tensor, solver: str, steps: int) -> Tensor:
    """The state at depth 1."""
    method, depths, evaluations = METHODS[solver]
    field.evaluations += steps * evaluations
    return method(field, x, weights(field, steps, depths))


def grid(problem: Problem) -> Case:
    """Any field on a fixed grid."""
    settings = problem.settings
    if "steps" not in settings:
        raise Unsupported("adaptive steps are not a short loop")
    if settings["gradient"] != "backprop":
        raise Unsupported("a loop is differentiated by backpropagation")
    field, x = field_of(problem), tensors(problem)["x"]
    return case(field, lambda: solve(field, x, settings["solver"], settings["steps"]))


def side() -> Side:
    """What can be written as a short loop."""
    rows = ("fixed-small", "fixed-large", "galerkin", "conv-stateful", "transformer")
    return Side("loop", torch.__version__, dict.fromkeys(rows, grid), torch.set_num_threads)


if __name__ == "__main__":
    serve(side())
