"""How the network of the demonstration is trained."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import affine_grid, cross_entropy, grid_sample

import continua as ct
from continua.models import continuous_net
from continua.train import Progress

#: basis functions, and steps, of each level of the training
LEVELS = (1, 2, 4, 8)
#: after which share of the epochs each but the first level starts
STARTS = (0.15, 0.35, 0.6)

#: basis functions, and steps, of the sizes of the elastic run
FAMILY = (4, 2, 1)

BATCH = 64
LEARNING_RATE = 0.1
WEIGHT_DECAY = 1e-3
WARM_UP = 0.1
SMOOTHING = 0.1
#: the share of images that are warped, and by how much to either side: degrees, relative,
#: relative, pixels
WARPED = 0.7
TURN, ZOOM, SHEAR, SHIFT = 10.0, 0.1, 0.1, 1.0

#: of an input and of what the full size's outputs are measured by
Loss = Callable[[Tensor, Callable[[Tensor], Tensor]], Tensor]


@dataclass(frozen=True)
class Course:
    """What a training is given."""

    images: Tensor
    labels: Tensor
    epochs: int
    width: int  # channels of the first stage
    seed: int  # of order and augmentation
    device: torch.device
    watch: Callable[[Progress], None]  # called after every epoch

    def network(self, size: int) -> nn.Module:
        """A network of so many basis functions and Euler steps."""
        return network(self.width, size, self.device)


def train(course: Course) -> tuple[nn.Module, list[dict[str, float]]]:
    """The trained network in evaluation mode, and what each epoch was like."""
    model = course.network(LEVELS[0])
    optimizer = fresh_optimizer(model)
    generator = torch.Generator().manual_seed(course.seed)
    starts, level = level_starts(course.epochs), 0
    history = []
    for epoch in range(course.epochs):
        if epoch in starts:
            level += 1
            model = ct.refine(model, LEVELS[level] // LEVELS[level - 1])
            optimizer = fresh_optimizer(model)  # the parameters are other tensors now
        data = _batches(course, epoch, generator)
        mean = _epoch(model, _plain(model), optimizer, data)
        history.append({"epoch": epoch + 1, "functions": LEVELS[level], "loss": mean})
        course.watch(
            Progress("training", epoch + 1, course.epochs, f"K={LEVELS[level]}, loss {mean:.3f}")
        )
    return model.eval(), history


def train_family(course: Course) -> tuple[ct.Elastic, dict[int, nn.Module]]:
    """One elastic run for all sizes, and a network trained for each size alone."""
    elastic = ct.Elastic(course.network(FAMILY[0]), FAMILY)
    alone = {size: course.network(size) for size in FAMILY}
    losses: dict[nn.Module, Loss] = {elastic: elastic.loss}
    losses |= {model: _plain(model) for model in alone.values()}
    for i, (model, loss) in enumerate(losses.items()):
        optimizer = fresh_optimizer(model)
        generator = torch.Generator().manual_seed(course.seed)
        for epoch in range(course.epochs):
            data = _batches(course, epoch, generator)
            mean = _epoch(model, loss, optimizer, data)
            note = f"{'all sizes' if i == 0 else f'K={FAMILY[i - 1]} alone'}, loss {mean:.3f}"
            course.watch(
                Progress("sizes", i * course.epochs + epoch + 1, len(losses) * course.epochs, note)
            )
    return elastic.eval(), {size: model.eval() for size, model in alone.items()}


def _plain(model: nn.Module) -> Loss:
    """The loss of a network by itself."""
    return lambda x, criterion: criterion(model(x))


def network(width: int, size: int, device: torch.device) -> nn.Module:
    """A network of so many basis functions and Euler steps."""
    return ct.build(
        continuous_net,
        in_channels=1,
        classes=10,
        width=width,
        stages=2,
        basis=ct.PiecewiseConstant(size),
        solver=ct.Euler(steps=size),
        epsilon=2.0,
        head_activation=True,
    ).to(device)


def _batches(
    course: Course, epoch: int, generator: torch.Generator
) -> Iterator[tuple[float, Tensor, Tensor]]:
    """The learning rate, images and labels of each step of an epoch."""
    count = len(course.labels) // BATCH
    order = torch.randperm(len(course.labels), generator=generator)
    for i, rows in enumerate(order[: count * BATCH].reshape(count, BATCH)):
        x = augmented(course.images[rows], generator).to(course.device)
        yield (
            learning_rate((epoch + i / count) / course.epochs),
            x,
            course.labels[rows].to(course.device),
        )


def _epoch(
    model: nn.Module,
    loss_of: Loss,
    optimizer: torch.optim.Optimizer,
    data: Iterator[tuple[float, Tensor, Tensor]],
) -> float:
    """The mean loss of an epoch of training."""
    model.train()
    losses = []
    for rate, x, y in data:
        for group in optimizer.param_groups:
            group["lr"] = rate
        criterion = functools.partial(cross_entropy, target=y, label_smoothing=SMOOTHING)
        loss = loss_of(x, criterion)
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
        losses.append(loss.item())
    return sum(losses) / len(losses)


def fresh_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    """SGD with momentum as in the paper, with twice its weight decay for so few images."""
    return torch.optim.SGD(
        model.parameters(), lr=LEARNING_RATE, momentum=0.9, weight_decay=WEIGHT_DECAY, nesterov=True
    )


def level_starts(epochs: int) -> list[int]:
    """The epochs, counted from 0, before which the network is refined; none without an epoch."""
    last = epochs - len(STARTS)
    return [min(max(round(share * epochs), i + 1), last + i) for i, share in enumerate(STARTS)]


def learning_rate(done: float) -> float:
    """Up in a line, down in a cosine, over the share of the training that is done."""
    if done < WARM_UP:
        return LEARNING_RATE * done / WARM_UP
    return LEARNING_RATE * 0.5 * (1 + math.cos(math.pi * (done - WARM_UP) / (1 - WARM_UP)))


def augmented(images: Tensor, generator: torch.Generator) -> Tensor:
    """Most images turned, zoomed, sheared and shifted a little, at random.

    The others stay as they are: a warped image is a little blurred, and batch norm would
    otherwise remember the statistics of blurred images alone.
    """
    count, pixels = len(images), images.shape[-1]

    def uniform(width: float) -> Tensor:
        return width * (2 * torch.rand(count, generator=generator) - 1)

    angle, zoom = uniform(math.radians(TURN)), 1 + uniform(ZOOM)
    cos, sin = angle.cos() / zoom, angle.sin() / zoom
    shift = 2 * SHIFT / pixels  # the image spans [-1, 1]
    maps = torch.stack(
        [cos, uniform(SHEAR) - sin, uniform(shift), sin, cos, uniform(shift)], dim=1
    ).reshape(count, 2, 3)
    grid = affine_grid(maps, list(images.shape), align_corners=False)
    warped = grid_sample(images, grid, align_corners=False)
    chosen = torch.rand(count, 1, 1, 1, generator=generator) < WARPED
    return torch.where(chosen, warped, images)
