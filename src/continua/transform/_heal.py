"""A smaller model trained to do what a larger one does, without labels."""

from __future__ import annotations

import copy
import logging
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.utils._pytree import tree_leaves

from continua._errors import ArgumentError, SolveError
from continua.block import ODEBlock
from continua.field import copied

from ._batches import Batches, call
from ._blocks import blocks
from ._recalibrate import reestimate
from ._stack import as_blocks

M = TypeVar("M", bound=nn.Module)
LOG = logging.getLogger(__name__)
#: one batch in so many is held back
SHARE = 4


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
    check_every: int = 20,
    patience: int = 5,
    callback: Callable[[HealProgress], None] | None = None,
) -> M:
    r"""A smaller model, trained to do what a larger one does; no labels are needed.

    The loss compares the outputs, and the states that both have at common depths, the start and
    the end of every block and of each step of the smaller one, each relative to the mean square
    of the larger one's:

    .. math:: \ell = \frac{\|\hat y - \hat Y\|^2}{\|\hat Y\|^2} + \frac{c}{n} \sum_{b, s}
              \frac{\|z_b(s) - Z_b(s)\|^2}{\|Z_b(s)\|^2}

    Adam takes the steps, with a learning rate that falls to zero along a cosine. One batch in four
    is held back; on these the loss is measured now and then with statistics read again, and the
    best model so far is what comes back, the given one included.

    Args:
        small: the model to train, as `compress` made it; it is not changed.
        teacher: the model it was made from; it is not changed.
        batches: inputs without labels, at least two batches, read again and again. Those held back
            are chosen by their place, so a `DataLoader` should keep its order.
        steps: the largest number of steps.
        lr: the learning rate at first.
        trajectory: c, the weight of the states beside the outputs.
        check_every: after how many steps the loss is measured on the batches held back.
        patience: how many such measurements without a better one end the training.
        callback: called with a `HealProgress` at each measurement.

    Example:
        >>> import continua as ct
        >>> block = ct.ODEBlock(nn.Linear(2, 2), ct.PiecewiseConstant(4), ct.Euler(steps=4))
        >>> x = torch.randn(64, 2).split(16)
        >>> small = ct.compress(block, ct.PiecewiseConstant(2), steps=2)
        >>> healed = ct.heal(small, block, x, steps=10)
    """
    for name, value in (("steps", steps), ("check_every", check_every), ("patience", patience)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ArgumentError(f"{name} is a whole number of at least 1, not {value!r}")
    for name, number in (("lr", lr), ("trajectory", trajectory)):
        if not (math.isfinite(number) and number >= 0):
            raise ArgumentError(f"{name} is a finite number of at least 0, not {number!r}")
    made, guide = copied(small), copied(teacher).eval()
    read = Batches(made, batches, least=2)
    Batches(guide, [next(iter(read))])
    loss = _Loss(made, guide, trajectory)
    modes = [module.training for module in made.modules()]
    best = _Best(made, loss, read)
    optimizer = torch.optim.Adam([p for p in made.parameters() if p.requires_grad], lr)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    feed = _endless(read)
    misses = 0
    for step in range(1, steps + 1):
        _training(made)
        optimizer.zero_grad()
        try:
            loss(next(feed)).backward()  # type: ignore[no-untyped-call]
        except SolveError as error:  # the learning rate is too large; the best so far remains
            LOG.warning("healing ends at step %d: %s", step, error)
            break
        optimizer.step()
        schedule.step()
        if step % check_every == 0 or step == steps:
            found = best.seen()
            misses = 0 if found == best.loss else misses + 1
            LOG.info("step %d: held-back loss %.4g, best %.4g", step, found, best.loss)
            if callback is not None:
                callback(HealProgress(step, found, best.loss))
            if misses == patience:
                break
    made.load_state_dict(best.state)
    for module, mode in zip(made.modules(), modes, strict=True):
        module.training = mode
    return made


class _Best:
    """The state of a model with the smallest loss on the batches held back."""

    def __init__(self, model: nn.Module, loss: _Loss, batches: Batches):
        self._model, self._of, self._batches = model, loss, batches
        self.loss, self.state = self._measured(), copy.deepcopy(model.state_dict())
        self._read_again()
        if (found := self._measured()) < self.loss:
            self.loss, self.state = found, copy.deepcopy(model.state_dict())

    def seen(self) -> float:
        """The loss of the model as it is now, which is kept if it is the best."""
        self._read_again()
        found = self._measured()
        if found < self.loss:
            self.loss, self.state = found, copy.deepcopy(self._model.state_dict())
        return found

    def _read_again(self) -> None:
        reestimate(self._model, (x for i, x in enumerate(self._batches) if i % SHARE != 1))

    @torch.no_grad()
    def _measured(self) -> float:
        self._model.eval()
        held = [float(self._of(x)) for i, x in enumerate(self._batches) if i % SHARE == 1]
        return sum(held) / len(held)


class _Loss:
    """How far a model is from another one, in outputs and in states."""

    def __init__(self, small: nn.Module, teacher: nn.Module, trajectory: float):
        self._small, self._teacher, self._weight = small, teacher, trajectory
        self._pairs: list[tuple[ODEBlock, ODEBlock, list[float]]] = []
        ours, theirs = blocks(small), blocks(teacher)
        if ours.keys() != theirs.keys():
            raise ArgumentError(
                f"the models have different blocks, {sorted(ours)} and {sorted(theirs)}; the "
                "teacher is the model that the smaller one was made from"
            )
        for name, block in ours.items():
            other = theirs[name]
            if block.span != other.span:
                raise ArgumentError(f"block {name!r} spans {block.span} and {other.span}")
            start, end = block.span
            n = block.solver.steps or 1
            depths = [start + (end - start) * i / n for i in range(1, n + 1)]
            self._pairs.append((block, other, depths))

    def __call__(self, batch: Any) -> Tensor:
        with torch.no_grad():
            target, states = self._followed(self._teacher, batch, 1)
        found, own = self._followed(self._small, batch, 0)
        loss = _relative(found, target)
        if own:
            gaps = [_relative(a, b) for a, b in zip(own, states, strict=True)]
            loss = loss + self._weight * torch.stack(gaps).mean()
        return loss

    def _followed(self, model: nn.Module, batch: Any, which: int) -> tuple[Any, list[Any]]:
        """The output of a model, and the states of its blocks at the common depths."""
        states: list[Any] = []
        if not self._weight:
            return call(model, batch), states
        saved = {}

        def solved(block: ODEBlock, depths: list[float]) -> Callable[..., Any]:
            def forward(x: Any, *args: Any, **kwargs: Any) -> Any:
                solution = block.solve(x, *args, save_at=depths, **kwargs)
                states.append(solution.z)
                return solution.final

            return forward

        for *pair, depths in self._pairs:
            saved[pair[which]] = solved(pair[which], depths)
        try:
            for block, forward in saved.items():
                vars(block)["forward"] = forward
            with as_blocks(model):
                return call(model, batch), states
        finally:
            for block in saved:
                del vars(block)["forward"]


def _relative(found: Any, target: Any) -> Tensor:
    """The mean square of a difference, relative to that of the target."""
    pairs = [
        (a, b)
        for a, b in zip(tree_leaves(found), tree_leaves(target), strict=True)
        if isinstance(a, Tensor) and a.is_floating_point()
    ]
    tiny = torch.finfo(pairs[0][1].dtype).tiny
    gaps = [(a - b).square().mean() / b.square().mean().clamp(min=tiny) for a, b in pairs]
    return torch.stack(gaps).sum()


def _training(model: nn.Module) -> None:
    """Norms read the batch; all else, dropout among it, is in evaluation mode."""
    model.eval()
    for module in model.modules():
        if isinstance(module, _NormBase):
            module.training = True
        if isinstance(module, ODEBlock) and module.expansion.state:
            module.field.training = True


def _endless(batches: Batches) -> Iterator[Any]:
    while True:
        yield from (batch for i, batch in enumerate(batches) if i % SHARE != 1)
