"""Small models, data and runs that the tests of training share."""

import dataclasses
import json
from pathlib import Path

import torch
from torch import Tensor, nn

import continua as ct
from continua.data import Dataset, Part, load
from continua.train import Classification, Outcome, Training, fit, read_history

TINY = {"batch_size": 8, "epochs": 2, "learning_rate": 0.05, "schedule": "constant"}


class Small(nn.Module):
    """Points to classes: dropout, a block with statistics, a basis that varies and one that not."""

    def __init__(self, width: int = 6, classes: int = 3, drop: float = 0.2, size: int = 1):
        super().__init__()
        unit = nn.Sequential(nn.BatchNorm1d(width), nn.Linear(width, width), nn.Tanh())
        self.stem = nn.Linear(2, width)
        self.drop = nn.Dropout(drop)
        self.block = ct.ODEBlock(
            unit,
            {"1.bias": ct.Constant(), "*": ct.PiecewiseConstant(size)},
            ct.Euler(steps=size),
            state_basis=ct.PiecewiseConstant(size),
        )
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.block(self.drop(self.stem(x))))


class Picture(nn.Module):
    """Images to classes, with kernels outside the block and in it."""

    def __init__(self, channels: int = 4):
        super().__init__()
        self.stem = nn.Conv2d(1, channels, 3, padding=1)
        unit = nn.Sequential(
            nn.BatchNorm2d(channels), nn.ReLU(), nn.Conv2d(channels, channels, 3, padding=1)
        )
        self.block = ct.ODEBlock(unit, ct.PiecewiseConstant(1), ct.Euler(steps=1))
        self.head = nn.Linear(channels, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.block(self.stem(x)).mean((2, 3)))


class Tags(nn.Module):
    """Token ids to a score per class and position."""

    def __init__(self, words: int = 7, classes: int = 4):
        super().__init__()
        self.embed = nn.Embedding(words, 5)
        self.head = nn.Linear(5, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.embed(x))


def points(classes: int = 3, sizes: tuple[int, int, int] = (36, 20, 12)) -> Dataset:
    """Points around as many centres as there are classes."""
    generator = torch.Generator().manual_seed(5)

    def part(size: int) -> Part:
        targets = torch.arange(size) % classes
        angle = 6.28 * targets / classes
        centres = torch.stack([angle.cos(), angle.sin()], 1)
        return Part(centres + 0.3 * torch.randn(size, 2, generator=generator), targets)

    return Dataset("points", *(part(size) for size in sizes), classes=classes)


def digits(train: int = 32) -> Dataset:
    """A few of the embedded digits."""
    whole = load("digits")

    def first(part: Part, size: int) -> Part:
        return Part(part.inputs[:size], part.targets[:size])

    parts = {"validation": first(whole.validation, 20), "test": first(whole.test, 20)}
    return dataclasses.replace(whole, train=first(whole.train, train), **parts)


def jittered(inputs: Tensor, generator: torch.Generator) -> Tensor:
    """Inputs moved a little."""
    return inputs + 0.1 * torch.randn(inputs.shape, generator=generator)


def small(**arguments: object) -> nn.Module:
    return ct.build(Small, **arguments)


def task(**options: object) -> Classification:
    return Classification(points(), augment=jittered, **options)


def course(**options: object) -> Training:
    return Training(**(TINY | options))


def run(folder: Path, training: Training | None = None, **options: object) -> Outcome:
    return fit(small, task(), training or course(), folder, device="cpu", **options)


def metrics(folder: Path) -> list[dict]:
    """The lines without what the clock says."""
    return [{k: v for k, v in line.items() if k != "seconds"} for line in read_history(folder)]


def final(folder: Path) -> tuple[dict[str, Tensor], dict, str | None]:
    """Everything in the last checkpoint: tensors of model and training, and the rest of it."""
    from safetensors.torch import load_file

    index = json.loads((folder / "checkpoints" / "index.json").read_text())
    last = folder / "checkpoints" / index["last"][0]
    tensors = {f"model.{k}": v for k, v in load_file(last / "model.safetensors").items()}
    tensors |= load_file(last / "training.safetensors")
    state = json.loads((last / "training.json").read_text())
    del state["position"]["seconds"]
    return tensors, state, index["best"]


def assert_same(one: Path, other: Path) -> None:
    """Two runs ended with the same bits, and told the same on their way."""
    assert metrics(one) == metrics(other)
    (tensors, state, best), (others, other_state, other_best) = final(one), final(other)
    assert tensors.keys() == others.keys()
    for name, value in tensors.items():
        assert torch.equal(value, others[name]), name
    # The clock, and what only says how often a checkpoint is written, may differ.
    for found in (state, other_state):
        found["about"]["training"].pop("checkpoint_minutes")
    assert state == other_state
    assert best == other_best


def parameters(model: nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in model.parameters()])
