"""A saved model, and something to put into it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import torch
import tyro
from torch import Tensor, nn

import continua as ct
from continua.data import digits

from ._model import TrustOptions, open_model


@dataclass(frozen=True)
class InputOptions(TrustOptions):
    """Which model, on which inputs."""

    model: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")]
    """A run folder, or the folder of a saved model."""

    shape: tuple[int, ...] = ()
    """The shape of one input, such as 3 32 32; by default that of the data."""

    batch_size: int = 4
    """How many inputs."""

    seed: int = 0
    """Seed of the inputs."""


def model_and_input(options: InputOptions) -> tuple[nn.Module, Tensor]:
    """The model in evaluation mode, and inputs: of its own test data, or random ones."""
    run, shape, batch, seed = options.model, options.shape, options.batch_size, options.seed
    if batch < 1:
        raise ct.ArgumentError(f"the batch size is at least 1, not {batch}")
    if shape and min(shape) < 1:
        raise ct.ArgumentError(
            f"a shape is made of whole numbers of at least 1, not {' '.join(map(str, shape))!r}"
        )
    demo = (run / "models" / "source").is_dir()
    model, origin = open_model(run / "models" / "source" if demo else run, options.trust)
    if shape:
        x = torch.randn(batch, *shape, generator=torch.Generator().manual_seed(seed))
    elif demo:
        x = digits(seed=seed).test_images[:batch]
    elif origin is not None:
        _, task = origin.load()
        generator = torch.Generator().manual_seed(seed)
        index = torch.randperm(task.size("test"), generator=generator)[:batch]
        x = task.inputs(task.batch("test", index, None))
    else:
        raise ct.ArgumentError(
            f"{run} does not say what its model takes; give the shape of one input, "
            "as in --shape 3 32 32"
        )
    return model, x
