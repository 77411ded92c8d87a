"""Every gradient method on the blocks of a saved model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
import tyro
from torch import Tensor, nn

import continua as ct
from continua.data import digits
from continua.transform import GradientReport, blocks


@dataclass(frozen=True)
class GradcheckOptions:
    """What to check."""

    run: tyro.conf.Positional[Path]
    """A folder of ct.save, or the run folder of the demonstration."""

    shape: tuple[int, ...] | None = None
    """The shape of one input, as in 3 32 32; not needed for the demonstration."""

    batch: int = 4
    """How many inputs."""

    seed: int = 0
    """Of the inputs."""


def run_gradcheck(options: GradcheckOptions) -> dict[str, GradientReport]:
    """`ct.gradcheck` for each block of a model, at the states that reach it."""
    run, shape, batch, seed = options.run, options.shape, options.batch, options.seed
    if batch < 1:
        raise ct.ArgumentError(f"batch is at least 1, not {batch}")
    demo = (run / "models" / "source").is_dir()
    model = ct.load(run / "models" / "source" if demo else run)
    if shape is None and not demo:
        raise ct.ArgumentError(
            f"{run} does not say what its model takes; give the shape of one input, "
            "as in --shape 3 32 32"
        )
    generator = torch.Generator().manual_seed(seed)
    if shape is None:
        x = digits(seed=seed).test_images[:batch]
    else:
        x = torch.randn(batch, *shape, generator=generator)
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
