"""A smaller model trained to do what a larger one does, without labels."""

from __future__ import annotations

import copy
import functools
import itertools
import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from continua._errors import ArgumentError, SolveError
from continua._values import whole_number
from continua.block import ODEBlock
from continua.field import copied

from ._batches import (
    SHARE,
    Batches,
    call,
    held_back,
    inputs_of,
    relative_error,
    replace_forward,
    tensors_in,
)
from ._blocks import blocks, step_ends
from ._recalibrate import Correction, reestimate
from ._stack import as_blocks
from ._warn import warn_swapped

M = TypeVar("M", bound=nn.Module)
#: the output of a model and the states of its blocks
Target = tuple[Any, list[Any]]
#: the largest number of batches that are held back
HELD = 8
#: how many bytes of targets are kept
KEPT = 2**30
LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class HealProgress:
    """How far `heal` has come.

    Attributes:
        step: how many steps were taken.
        loss: on the batches held back, after them.
        best: the smallest of these so far.
    """

    step: int
    loss: float
    best: float


def heal(
    small: M,
    teacher: nn.Module,
    batches: Iterable[Any],
    *,
    steps: int = 200,
    lr: float = 3e-3,
    trajectory: float = 1.0,
    check_every: int = 50,
    patience: int = 5,
    callback: Callable[[HealProgress], None] | None = None,
) -> M:
    r"""A smaller model, trained to do what a larger one does; no labels are needed.

    This is knowledge distillation, with the larger model as the teacher. The loss compares the
    outputs, and the states that both have at common depths, the start and the end of every block
    and of each step of the smaller one, each relative to the mean square of the larger one's:

    .. math:: \ell = \frac{\|\hat y - \hat Y\|^2}{\|\hat Y\|^2} + \frac{c}{n} \sum_{b, s}
              \frac{\|z_b(s) - Z_b(s)\|^2}{\|Z_b(s)\|^2}

    Adam takes the steps, with a learning rate that rises during the first tenth of them and falls
    to zero along a cosine. One batch in four is held back, eight at most; on these the loss is
    measured now and then with statistics re-estimated from as many others, and the best model so
    far is what comes back, the given one included. While it trains, the larger model has the
    statistics of these inputs too; the difference to its own is removed from the estimates.

    Call it under `torch.autocast` to train in mixed precision. What the larger model gives for a
    list of batches is kept, up to 1 GB, so it runs once for each of these.

    Args:
        small: the model to train, as `compress` made it; it is not changed.
        teacher: the model it was made from; it is not changed.
        batches: inputs without labels, at least two batches, read again and again. The second, the
            sixth and so on are held back, so the inputs should be mixed beforehand. A `DataLoader`
            that shuffles is read once, and its batches are kept.
        steps: the largest number of steps.
        lr: the largest learning rate.
        trajectory: c, the weight of the states beside the outputs.
        check_every: after how many steps the loss is measured on the batches held back.
        patience: how many such measurements, each no better than one before, end the training. The
            model as it was given does not count: the loss may rise at first.
        callback: called with a `HealProgress` at each measurement.

    Example:
        >>> import continua as ct
        >>> block = ct.ODEBlock(nn.Linear(2, 2), ct.PiecewiseConstant(4), ct.Euler(steps=4))
        >>> x = torch.randn(64, 2).split(16)
        >>> small = ct.compress(block, ct.PiecewiseConstant(2), steps=2)
        >>> healed = ct.heal(small, block, x, steps=10)
    """
    for name, count in {"steps": steps, "check_every": check_every, "patience": patience}.items():
        whole_number(name, count)
    for name, number in {"lr": lr, "trajectory": trajectory}.items():
        if not (math.isfinite(number) and number >= 0):
            raise ArgumentError(f"{name} is a finite number of at least 0, not {number!r}")
    made, guide = copied(small), copied(teacher).eval()
    read = Batches(made, batches, least=2)
    first = next(iter(read))
    Batches(guide, [first])
    made.eval()
    held = _Loss(made, guide, trajectory, first)
    warn_swapped(small, teacher)
    if not (trained := [p for p in made.parameters() if p.requires_grad]):
        raise ArgumentError("every parameter of the model to heal is frozen: nothing to train")
    best = _Best(made, guide, held, read)
    loss = _Loss(made, best.correct.read, trajectory, first)
    optimizer = torch.optim.Adam(trained, lr)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, _rate(steps))
    feed = _endless(read, loss)
    misses, lowest = 0, math.inf
    for step in range(1, steps + 1):
        torch.clear_autocast_cache()  # of weights as they were, or without a graph
        _train_norms(made)
        optimizer.zero_grad()
        try:
            loss(*next(feed)).backward()  # type: ignore[no-untyped-call]
        except SolveError as error:  # the learning rate is too large; the best so far remains
            LOG.warning("healing ends at step %d: %s", step, error)
            break
        optimizer.step()
        schedule.step()
        if step % check_every == 0 or step == steps:
            found = best.update()
            misses = 0 if found < lowest else misses + 1
            lowest = min(found, lowest)
            LOG.info("step %d: held-back loss %.4g, best %.4g", step, found, best.loss)
            if callback is not None:
                callback(HealProgress(step, found, best.loss))
            if misses == patience:
                break
    made.load_state_dict(best.state)
    for module, given in zip(made.modules(), small.modules(), strict=True):
        module.training = given.training
    return made


class _Best:
    """The state of a model with the smallest loss on the batches held back."""

    def __init__(self, model: nn.Module, teacher: nn.Module, loss: _Loss, batches: Batches):
        self._model, self._loss = model, loss
        few = list(itertools.islice(batches, SHARE * HELD))
        self._read = [x for i, x in enumerate(few) if not held_back(i)][:HELD]
        self.correct = Correction(teacher, self._read)
        self._held = [(x, loss.target(x)) for i, x in enumerate(few) if held_back(i)]
        self.loss, self.state = self._measure(), copy.deepcopy(model.state_dict())
        self.update()

    def update(self) -> float:
        """The loss of the model as it is now, whose state is kept if it is the best."""
        reestimate(self._model, self._read)
        self.correct(self._model)
        found = self._measure()
        if found < self.loss:
            self.loss, self.state = found, copy.deepcopy(self._model.state_dict())
        return found

    @torch.no_grad()
    def _measure(self) -> float:
        self._model.eval()
        return sum(float(self._loss(*one)) for one in self._held) / len(self._held)


class _Loss:
    """How far a model is from its teacher, in outputs and in states at common depths."""

    def __init__(self, small: nn.Module, teacher: nn.Module, trajectory: float, batch: Any):
        self._small, self._teacher, self._weight = small, teacher, trajectory
        ours, theirs = blocks(small), blocks(teacher)
        if ours.keys() != theirs.keys():
            raise ArgumentError(
                f"the models have different blocks, {sorted(ours)} and {sorted(theirs)}; the "
                "teacher is the model that the smaller one was made from"
            )
        self._depths: dict[ODEBlock, list[float]] = {}
        self._teacher_depths: dict[ODEBlock, list[float]] = {}
        for name, block in ours.items() if trajectory else ():
            self._depths[block] = step_ends(block)
            self._teacher_depths[theirs[name]] = self._common_depths(block, theirs[name], batch)

    @torch.no_grad()
    def _common_depths(self, block: ODEBlock, other: ODEBlock, batch: Any) -> list[float]:
        """The depths of the teacher's block at which its states are compared.

        Where the spans differ, as the fit of layers leaves them, the ends of the smaller one's
        steps are paired with those of the larger one whose states are nearest, in order.
        """
        depths, every = step_ends(block), step_ends(other)
        if block.span == other.span:
            return depths
        with as_blocks(self._small, self._teacher):
            inputs = inputs_of(self._small, block, batch)
            given = inputs_of(self._teacher, other, batch)
        ours = inputs.solve(block, save_at=depths).z
        theirs = given.solve(other, save_at=every).z
        errors = [[float(relative_error(a, b)) for b in theirs] for a in ours]
        return [every[j] for j in _match_in_order(errors)]

    @torch.no_grad()
    def target(self, batch: Any) -> Target:
        """The output and the states of the teacher for a batch."""
        return _output_and_states(self._teacher, self._teacher_depths, batch)

    def __call__(self, batch: Any, target: Target) -> Tensor:
        output, states = _output_and_states(self._small, self._depths, batch)
        loss = relative_error(output, target[0])
        if states:
            gaps = [relative_error(a, b) for a, b in zip(states, target[1], strict=True)]
            loss = loss + self._weight * torch.stack(gaps).mean()
        return loss


def _output_and_states(
    model: nn.Module, depths: Mapping[ODEBlock, list[float]], batch: Any
) -> Target:
    """The output of a model, and the states of its blocks at some depths."""
    states: list[Any] = []
    if not depths:
        return call(model, batch), states

    def solve(block: ODEBlock, x: Any, *args: Any, **kwargs: Any) -> Any:
        solution = block.solve(x, *args, save_at=depths[block], **kwargs)
        states.append(solution.z)
        return solution.final

    with ExitStack() as stack:
        for block in depths:
            stack.enter_context(replace_forward(block, functools.partial(solve, block)))
        stack.enter_context(as_blocks(model))
        return call(model, batch), states


def _match_in_order(errors: list[list[float]]) -> list[int]:
    """For each row a column, each after the one before and the last for the last, of least sum."""
    n, m = len(errors), len(errors[0])
    if n >= m:  # evenly
        return [min(m - 1, (i + 1) * m // n) for i in range(n - 1)] + [m - 1]
    best = {-1: (0.0, list[int]())}
    for i, row in enumerate(errors):
        columns = range(i, m - n + i + 1) if i < n - 1 else [m - 1]
        best = {
            j: (total + row[j], [*way, j])
            for j in columns
            for total, way in [min(best[k] for k in best if k < j)]
        }
    return best[m - 1][1]


def _train_norms(model: nn.Module) -> None:
    """Let norms read the batch; all else, dropout among it, is in evaluation mode."""
    model.eval()
    for module in model.modules():
        if isinstance(module, _NormBase):
            module.training = True


def _rate(steps: int) -> Callable[[int], float]:
    """The learning rate at each step, relative to the largest."""
    return lambda i: min(10 * (i + 1) / steps, (1 + math.cos(math.pi * i / steps)) / 2)


def _endless(batches: Batches, loss: _Loss) -> Iterator[tuple[Any, Target]]:
    """The batches that are not held back, again and again, with the targets of the teacher."""
    targets: dict[int, Target] = {}
    room = KEPT if batches.repeatable else 0
    while True:
        for i, batch in enumerate(batches):
            if held_back(i) and i < SHARE * HELD:
                continue
            target = targets.get(i) or loss.target(batch)
            if i not in targets:
                room -= sum(leaf.nbytes for leaf in tensors_in(target))
                if room >= 0:
                    targets[i] = target
            yield batch, target
