"""A file to begin with."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

import continua as ct
from continua.files import write_whole

TEMPLATE = '''"""A model, data and a training of my own.

    continua train {file}:recipe              trains, and goes on with a run that was stopped
    continua train {file}:recipe --show       every setting, its meaning and its value
    continua train {file}:recipe --set width=64 epochs=20
    continua sweep runs/{stem}-recipe-laptop-0 --recipe {file}:recipe
"""

import torch
from torch import nn

import continua as ct
from continua.data import Dataset, Part
from continua.train import Training


class Net(nn.Module):
    """A classifier with one ODE block; wrap the residual part of a network of yours instead."""

    def __init__(self, inputs: int, width: int, classes: int):
        super().__init__()
        residual = nn.Sequential(nn.Linear(width, width), nn.Tanh(), nn.Linear(width, width))
        self.first = nn.Linear(inputs, width)
        # Four values per weight and four steps to begin with; the training doubles both.
        self.block = ct.ODEBlock(residual, ct.PiecewiseConstant(4), ct.Euler(steps=4))
        self.last = nn.Linear(width, classes)

    def forward(self, x):
        return self.last(self.block(self.first(x)))


def points(n: int, noise: float) -> Dataset:
    """Two spirals. Return a Dataset of tensors, or {{"train": loader, "test": loader}} with
    DataLoaders, torch datasets or Hugging Face datasets (see below)."""
    generator = torch.Generator().manual_seed(0)  # the same data every time
    angle = 1 + 5 * torch.rand(n, generator=generator)
    label = torch.arange(n) % 2
    turned = angle + torch.pi * label
    x = torch.stack([angle * turned.cos(), angle * turned.sin()], 1) / 6
    x += noise * torch.randn(n, 2, generator=generator)
    a, b = int(0.7 * n), int(0.85 * n)
    train, validation, test = (Part(x[i:j], label[i:j]) for i, j in ((0, a), (a, b), (b, n)))
    return Dataset("spirals", train, validation, test, classes=2)


def recipe(width: int = 32, n: int = 2000, noise: float = 0.01):
    """Two spirals told apart by one ODE block.

    The arguments are settings that --set changes; each needs a default.

    Args:
        width: of the hidden state.
        n: how many points.
        noise: their standard deviation.
    """
    # For data of Hugging Face:
    #     from datasets import load_dataset
    #     data = load_dataset("...").with_format("torch")    # train, validation, test
    # For DataLoaders; a part that is missing is a tenth of the training part:
    #     data = {{"train": DataLoader(...), "test": DataLoader(...)}}
    data = points(n, noise)
    training = Training(
        epochs=20,
        batch_size=64,
        optimizer="adam",
        learning_rate=1e-2,
        weight_decay=0.0,
        refine_epochs=(10,),  # 4 -> 8 basis functions and steps
    )
    return lambda: Net(2, width, data.classes), data, training
'''


@dataclass(frozen=True)
class NewOptions:
    """What to write."""

    file: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="FILE")]
    """The file to write, such as my_file.py."""

    force: bool = False
    """Overwrite the file if it exists."""


def run_new(options: NewOptions) -> Path:
    """Write a file with a recipe to begin with."""
    file = options.file
    if file.suffix != ".py" or not file.stem.isidentifier():
        raise ct.ArgumentError(f"{file} is not the name of a Python file, such as my_file.py")
    if file.exists() and not options.force:
        raise ct.FileError(f"{file} exists; --force overwrites it")
    if not file.parent.is_dir():
        raise ct.FileError(f"there is no folder {file.parent}")
    write_whole(file, TEMPLATE.format(file=file.name, stem=file.stem).encode())
    return file
