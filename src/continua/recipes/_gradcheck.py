"""Every gradient method on the blocks of a saved model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import torch
import tyro
from torch import Tensor, nn

import continua as ct
from continua.data import digits
from continua.transform import GradientReport, blocks

from ._model import open_model


@dataclass(frozen=True)
class GradcheckOptions:
    """What to check."""

    run: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """A run folder, or the folder of a model."""

    shape: tuple[int, ...] | None = None
    """The shape of one input, as in 3 32 32; needed where the model does not know its data."""

    batch: int = 4
    """How many inputs."""

    seed: int = 0
    """Of the inputs."""


def run_gradcheck(options: GradcheckOptions) -> dict[str, GradientReport]:
    """`ct.gradcheck` for each block of a model, at the states that reach it."""
    run, shape, batch, seed = options.run, options.shape, options.batch, options.seed
    if batch < 1:
        raise ct.ArgumentError(f"batch is at least 1, not {batch}")
    if shape is not None and (not shape or min(shape) < 1):
        raise ct.ArgumentError(
            f"a shape is made of whole numbers of at least 1, not {' '.join(map(str, shape))!r}"
        )
    demo = (run / "models" / "source").is_dir()
    model, origin = open_model(run / "models" / "source" if demo else run)
    if shape is not None:
        x = torch.randn(batch, *shape, generator=torch.Generator().manual_seed(seed))
    elif demo:
        x = digits(seed=seed).test_images[:batch]
    elif origin is not None:
        _, task = origin.load()
        generator = torch.Generator().manual_seed(seed)
        index = torch.randperm(task.size("test"), generator=generator)[:batch]
        x = task.batch("test", index, None)[0]
    else:
        raise ct.ArgumentError(
            f"{run} does not say what its model takes; give the shape of one input, "
            "as in --shape 3 32 32"
        )
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
