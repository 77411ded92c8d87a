"""One step of training: a batch, its gradient, an update."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from continua._errors import ArgumentError, ContinuaError, SolveError
from continua.measure import count_evaluations
from continua.transform import Elastic, project_gradient, smoothness

from ._checkpoint import Position
from ._config import Training
from ._process import any_process, average_statistics, sum_tally
from ._random import mix_seeds
from ._size import Sized
from ._task import Tally, Task

if TYPE_CHECKING:
    from accelerate import Accelerator

# What a seed is for, so that no two uses draw the same numbers.
ORDER, AUGMENTATION, NOISE = 1, 2, 3


class TrainingStep:
    """One step of a training: a call updates the model once.

    Args:
        task: data, loss and measures.
        training: the configuration.
        accelerator: of this process.
        channels_last: whether images and kernels are in channels-last memory format.

    Attributes:
        model: the model that is trained.
        optimizer: of its parameters.
        per_epoch: the number of steps in an epoch.
    """

    def __init__(
        self, task: Task, training: Training, accelerator: Accelerator, channels_last: bool
    ):
        self.task, self.training, self.accelerator = task, training, accelerator
        self.channels_last = channels_last
        samples = task.size("train")
        if samples == 0:
            raise ArgumentError("the training part is empty")
        self.batch_size = min(training.batch_size, samples)
        if self.batch_size % accelerator.num_processes:
            raise ArgumentError(
                f"batch_size={self.batch_size} cannot be shared by "
                f"{accelerator.num_processes} processes"
            )
        self.per_pass = samples // self.batch_size
        self.per_epoch = training.epoch_steps or self.per_pass
        self.order: tuple[int, Tensor] = (-1, torch.empty(0))

    def set_model(self, model: nn.Module) -> None:
        """Train this model from here on, with a fresh optimizer."""
        model = self.place_model(model)
        self.model = self.wrapped = model
        if self.accelerator.num_processes > 1:
            self.wrapped = self.accelerator.prepare_model(model)
            # Mixed precision is switched on in `__call__`. The model itself keeps its own forward,
            # for evaluation, copies and files.
            for name in ("forward", "_original_forward"):
                model.__dict__.pop(name, None)
        self.optimizer = self.accelerator.prepare_optimizer(self.training.make_optimizer(model))

    def place_model(self, model: nn.Module) -> nn.Module:
        """The model on the device, in the memory format of the training."""
        model = model.to(self.accelerator.device)
        if self.channels_last:
            model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        return model

    def __call__(self, position: Position) -> Tally:
        """Update the model once; the measures over all processes.

        Args:
            position: of the training; it is not changed.
        """
        training = self.training
        rate = training.rate(position.epoch + position.batch / self.per_epoch)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        index = self._index(position.step)
        # The same in a run that was resumed, different in every process.
        numbers = (position.step, self.accelerator.process_index)
        generator = torch.Generator()
        generator.manual_seed(mix_seeds(training.seed, AUGMENTATION, *numbers))
        torch.manual_seed(mix_seeds(training.seed, NOISE, *numbers))  # for dropout
        batch = [self._place(t) for t in self.task.batch("train", index, generator)]
        with count_evaluations(self.model) as evaluations:
            tally = self._differentiate(batch, position)
        if evaluations.solves:
            tally.add("evaluations", evaluations.forward, 1)
            tally.add("backward_evaluations", evaluations.backward, 1)
        if training.functional_gradient:
            project_gradient(self.model, mean=True)
        if training.clip is not None:
            self.accelerator.clip_grad_norm_(self.wrapped.parameters(), training.clip)
        self.optimizer.step()
        if training.average_statistics:
            average_statistics(self.model)
        return sum_tally(self.accelerator, tally)

    def _differentiate(self, batch: Sequence[Tensor], position: Position) -> Tally:
        """Compute the gradient of the loss of a batch, and its measures."""
        try:
            with self.accelerator.autocast():
                found = self.task.loss(self.wrapped, batch)
                if not (isinstance(found, tuple) and len(found) == 2):
                    raise ArgumentError(
                        f"{type(self.task).__name__}.loss returns the loss and a Tally, not a "
                        f"{type(found).__name__}"
                    )
                loss, tally = found
                loss = self._add_terms(loss, batch, position.step)
        except ContinuaError as error:
            # A block refuses the output of a layer that diverged: blame the weights, not the data.
            diverged = not all(bool(torch.isfinite(p).all()) for p in self.model.parameters())
            if not diverged and not isinstance(error, SolveError):
                raise
            reason = "the weights are no longer finite" if diverged else f"{error};"
            raise SolveError(f"{reason} {_advice(position)}") from error
        value = float(loss.detach())
        if any_process(self.accelerator, not math.isfinite(value))[0]:
            raise SolveError(f"the training loss is {value:g} {_advice(position)}")
        self.optimizer.zero_grad()
        self.accelerator.backward(loss)
        return tally

    def _add_terms(self, loss: Tensor, batch: Sequence[Tensor], step: int) -> Tensor:
        """The loss of the full size, averaged with those of smaller sizes, and smoothness."""
        if isinstance(self.model, Elastic):
            sizes = [Sized(self.wrapped, size) for size in self.model.trained(step)]
            losses = [loss, *(self.task.loss(model, batch)[0] for model in sizes)]
            loss = torch.stack(losses).mean()
        if self.training.smoothness:
            loss = loss + self.training.smoothness * smoothness(self.model)
        return loss

    def _index(self, step: int) -> Tensor:
        """The samples of this step and process; every pass over the data is a permutation."""
        number, i = divmod(step, self.per_pass)
        if self.order[0] != number:
            generator = torch.Generator().manual_seed(mix_seeds(self.training.seed, ORDER, number))
            self.order = (number, torch.randperm(self.task.size("train"), generator=generator))
        batch = self.order[1][i * self.batch_size : (i + 1) * self.batch_size]
        return batch[self.accelerator.process_index :: self.accelerator.num_processes]

    def _place(self, tensor: Tensor) -> Tensor:
        """The tensor on the device, in the memory format of the training."""
        tensor = tensor.to(self.accelerator.device)
        if self.channels_last and tensor.dim() == 4:
            return tensor.contiguous(memory_format=torch.channels_last)
        return tensor


def _advice(position: Position) -> str:
    where = f"at step {position.step}, epoch {position.epoch + 1}"
    return f"{where}: try a lower learning_rate, warmup or clip"
