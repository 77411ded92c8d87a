"""Every gradient method on the blocks of a saved model."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

import continua as ct
from continua.measure import GradientReport
from continua.transform import blocks

from ._inputs import InputOptions, model_and_input


@dataclass(frozen=True)
class GradcheckOptions(InputOptions):
    """What to check."""


def run_gradcheck(options: GradcheckOptions) -> dict[str, GradientReport]:
    """`ct.gradcheck` for each block of a model, at the states that reach it."""
    model, x = model_and_input(options)
    reports = {}
    for name, state in _states(model, x).items():
        reports[name] = ct.gradcheck(blocks(model)[name], state)
    return reports


def _states(model: nn.Module, x: Tensor) -> dict[str, Tensor]:
    """The input of each block when the model sees x."""
    seen: dict[str, Tensor] = {}
    handles = []
    for name, block in blocks(model).items():

        def note(module: nn.Module, inputs: tuple[Tensor, ...], name: str = name) -> None:
            seen.setdefault(name, inputs[0].detach())

        handles.append(block.register_forward_pre_hook(note))
    try:
        with torch.no_grad():
            model(x)
    except RuntimeError as error:
        raise ct.ShapeError(
            f"the model fails on inputs of shape {list(x.shape)}: {error}"
        ) from error
    finally:
        for handle in handles:
            handle.remove()
    return seen
