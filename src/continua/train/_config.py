"""The configuration of a training."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, Self, get_args

import torch
from torch import nn

from continua._errors import ArgumentError
from continua._values import whole_number

Optimizer = Literal["sgd", "adam", "adamw"]
Schedule = Literal["constant", "step", "cosine", "one-cycle", "inverse-root"]
Precision = Literal["no", "bf16", "fp16"]
OPTIONAL = ("epoch_steps", "patience", "clip")


@dataclass(frozen=True)
class Training:
    r"""The configuration of a training, besides model and data.

    An epoch is a pass over the training part, or `epoch_steps` batches. The learning rate is

    .. math:: \text{lr}(t) = \text{learning\_rate} \cdot w(t) \cdot f(t)

    with the warm-up w, a line from zero over `warmup` epochs, and f by the schedule: 1; `decay`
    to the number of milestones passed; half a cosine to zero; a line up over the first
    `warmup` epochs and a line down to zero after (one cycle); or the inverse square root of
    time in units of the warm-up.

    Attributes:
        epochs: how many.
        epoch_steps: batches per epoch; None for one pass over the data.
        batch_size: samples per step, over all processes together.
        optimizer: SGD has Nesterov's momentum; AdamW decouples the weight decay.
        learning_rate: the highest.
        momentum: of SGD.
        nesterov: whether SGD's momentum is Nesterov's.
        betas: of Adam.
        eps: of Adam.
        weight_decay: on every parameter.
        schedule: of the learning rate.
        warmup: in epochs.
        milestones: epochs, counted from 0, from which on the rate is lower; in any order.
        decay: by which factor.
        functional_gradient: whether steps follow the gradient of the functions of depth
            (`continua.project_gradient`), not that of their coefficients. One learning rate then
            suits every number of basis functions. For SGD.
        clip: the largest norm of a gradient; None for any.
        precision: of automatic mixed precision.
        refine_epochs: epochs before which basis functions and steps are doubled.
        project_epochs: epochs before which both are halved, by projection.
        elastic: sizes to train at once, as numbers of basis functions from the largest to the
            smallest; with `refine_epochs` those that the model has so far. See `continua.Elastic`.
        smoothness: the weight of `continua.smoothness` in the loss.
        average_statistics: whether batch-norm statistics are averaged over processes after every
            step; otherwise they are those of the first process.
        evaluate_every: epochs between evaluations on the validation part.
        patience: evaluations without improvement before stopping; None for never.
        checkpoint_minutes: the longest time without a checkpoint inside an epoch; there is one
            after every epoch.
        seed: of weights, order and augmentation.
        tensorboard: whether to write events for TensorBoard too.
    """

    epochs: int = 10
    epoch_steps: int | None = None
    batch_size: int = 128
    optimizer: Optimizer = "sgd"
    learning_rate: float = 0.1
    momentum: float = 0.9
    nesterov: bool = True
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 5e-4
    schedule: Schedule = "cosine"
    warmup: float = 0.0
    milestones: tuple[int, ...] = ()
    decay: float = 0.1
    functional_gradient: bool = False
    clip: float | None = None
    precision: Precision = "no"
    refine_epochs: tuple[int, ...] = ()
    project_epochs: tuple[int, ...] = ()
    elastic: tuple[int, ...] = ()
    smoothness: float = 0.0
    average_statistics: bool = False
    evaluate_every: int = 1
    patience: int | None = None
    checkpoint_minutes: float = 10.0
    seed: int = 0
    tensorboard: bool = False

    def __post_init__(self) -> None:
        self._check_numbers()
        self._check_choices()
        self._check_epochs()
        self._check_elastic()

    def _check_numbers(self) -> None:
        for name in ("epochs", "batch_size", "evaluate_every", "epoch_steps", "patience"):
            value = getattr(self, name)
            if value is not None or name not in OPTIONAL:
                object.__setattr__(self, name, whole_number(name, value))
        for name in ("learning_rate", "eps", "decay", "checkpoint_minutes", "clip"):
            value = getattr(self, name)
            if value is None and name in OPTIONAL:
                continue
            if not isinstance(value, int | float) or not 0 < value < math.inf:
                raise ArgumentError(f"{name} is a positive number, not {value!r}")
        for name in ("weight_decay", "warmup", "momentum", "smoothness"):
            value = getattr(self, name)
            if not isinstance(value, int | float) or not 0 <= value < math.inf:
                raise ArgumentError(f"{name} is a number of at least 0, not {value!r}")
        if len(self.betas) != 2 or not all(0 <= beta < 1 for beta in self.betas):
            raise ArgumentError(f"betas are two numbers in [0, 1), not {self.betas!r}")
        object.__setattr__(self, "seed", whole_number("seed", self.seed, 0, 2**32 - 1))

    def _check_choices(self) -> None:
        kinds = {"optimizer": Optimizer, "schedule": Schedule, "precision": Precision}
        for name, kind in kinds.items():
            if getattr(self, name) not in get_args(kind):
                known = ", ".join(get_args(kind))
                raise ArgumentError(f"{name} is one of {known}, not {getattr(self, name)!r}")
        if self.functional_gradient and self.optimizer != "sgd":
            raise ArgumentError(
                f"functional_gradient=True needs optimizer='sgd': {self.optimizer!r} divides every "
                "gradient by its own size"
            )
        for milestone in self.milestones:
            whole_number("an epoch of milestones", milestone, 0)
        if self.schedule == "inverse-root" and self.warmup == 0:
            raise ArgumentError("schedule 'inverse-root' needs warmup, in epochs")
        if self.schedule == "one-cycle" and not 0 < self.warmup < self.epochs:
            raise ArgumentError(
                f"schedule 'one-cycle' needs warmup between 0 and {self.epochs} epochs, "
                f"not {self.warmup!r}"
            )

    def _check_epochs(self) -> None:
        """Check the epochs in which the model is refined or projected."""
        for name in ("refine_epochs", "project_epochs"):
            if not isinstance(getattr(self, name), tuple | list):
                raise ArgumentError(
                    f"{name} is a tuple of epochs, as in (2, 4), not {getattr(self, name)!r}"
                )
            for epoch in getattr(self, name):
                whole_number(f"an epoch of {name}, counted from 0,", epoch, 1, self.epochs - 1)
        if both := set(self.refine_epochs) & set(self.project_epochs):
            raise ArgumentError(f"epoch {min(both)} cannot both refine and project")

    def _check_elastic(self) -> None:
        if not isinstance(self.elastic, tuple | list):
            raise ArgumentError(
                f"elastic is a tuple of sizes, as in (4, 2, 1), not {self.elastic!r}"
            )
        for size in self.elastic:
            whole_number("a size of elastic", size)
        if list(self.elastic) != sorted(set(self.elastic), reverse=True):
            raise ArgumentError(f"elastic goes from large to small, not {self.elastic!r}")
        if self.elastic and self.project_epochs:
            raise ArgumentError(
                "elastic and project_epochs do not go together: the smaller sizes are there already"
            )

    def rate(self, epoch: float) -> float:
        """The learning rate when so many epochs are done, in fractions.

        Example:
            >>> Training(schedule="step", milestones=(30, 10, 20), epochs=40).rate(10)
            0.010000000000000002
        """
        factor = 1.0
        if self.warmup > 0 and epoch < self.warmup:
            factor = epoch / self.warmup
        after = max(self.epochs - self.warmup, 1e-12)
        done = min(max((epoch - self.warmup) / after, 0.0), 1.0)
        if self.schedule == "step":
            factor *= self.decay ** sum(epoch >= milestone for milestone in self.milestones)
        elif self.schedule == "cosine":
            factor *= 0.5 * (1 + math.cos(math.pi * done))
        elif self.schedule == "one-cycle":
            factor *= 1 - done
        elif self.schedule == "inverse-root":
            factor *= math.sqrt(self.warmup / max(epoch, self.warmup))
        return self.learning_rate * factor

    def make_optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """A fresh optimizer of the model's parameters."""
        parameters = [p for p in model.parameters() if p.requires_grad]
        if not parameters:
            raise ArgumentError("the model has no parameter that requires a gradient")
        rate, decay = self.learning_rate, self.weight_decay
        if self.optimizer == "sgd":
            nesterov = self.nesterov and self.momentum > 0
            return torch.optim.SGD(
                parameters, rate, self.momentum, weight_decay=decay, nesterov=nesterov
            )
        kind = torch.optim.Adam if self.optimizer == "adam" else torch.optim.AdamW
        return kind(parameters, rate, self.betas, self.eps, decay)

    def config(self) -> dict[str, Any]:
        """The arguments, ready for JSON."""
        return asdict(self)

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """The inverse of `config`."""
        known = {field.name for field in fields(cls)}
        unknown = sorted(config.keys() - known)
        if unknown:
            raise ArgumentError(f"a training has no option {unknown[0]!r}")
        values = {k: tuple(v) if isinstance(v, list) else v for k, v in config.items()}
        return cls(**values)  # type: ignore[arg-type]
