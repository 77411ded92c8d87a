"""A smaller model trained to do what a larger one does, without labels."""

from __future__ import annotations

import copy
import itertools
import logging
import math
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.utils._pytree import tree_leaves

from continua._errors import ArgumentError, SolveError
from continua._values import whole_number
from continua.block import ODEBlock
from continua.field import copied

from ._batches import SHARE, Batches, call, held_back, inputs_of, relative_error
from ._blocks import blocks
from ._recalibrate import Correction, reestimate
from ._stack import as_blocks

M = TypeVar("M", bound=nn.Module)
Target = tuple[Any, list[Any]]
#: how many batches are held back at most
HELD = 8
#: bytes of what the larger model gives that are kept
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
    _check_numbers(lr=lr, trajectory=trajectory)
    made, guide = copied(small), copied(teacher).eval()
    read = Batches(made, batches, least=2)
    Batches(guide, [next(iter(read))])
    held = _Loss(made, guide, trajectory)
    _warn_swapped(small, teacher)
    if not (trained := [p for p in made.parameters() if p.requires_grad]):
        raise ArgumentError("every parameter of the model to heal is frozen: nothing to train")
    modes = [module.training for module in made.modules()]
    made.eval()
    held.align(next(iter(read)))
    best = _Best(made, guide, held, read)
    loss = _Loss(made, best.correct.read, trajectory)
    loss.align(next(iter(read)))
    optimizer = torch.optim.Adam(trained, lr)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, _rate(steps))
    feed = _endless(read, loss)
    misses, lowest = 0, math.inf
    for step in range(1, steps + 1):
        torch.clear_autocast_cache()  # of weights as they were, or without a graph
        _training(made)
        optimizer.zero_grad()
        try:
            loss(*next(feed)).backward()  # type: ignore[no-untyped-call]
        except SolveError as error:  # the learning rate is too large; the best so far remains
            LOG.warning("healing ends at step %d: %s", step, error)
            break
        optimizer.step()
        schedule.step()
        if step % check_every == 0 or step == steps:
            found = best.seen()
            misses = 0 if found < lowest else misses + 1
            lowest = min(found, lowest)
            LOG.info("step %d: held-back loss %.4g, best %.4g", step, found, best.loss)
            if callback is not None:
                callback(HealProgress(step, found, best.loss))
            if misses == patience:
                break
    made.load_state_dict(best.state)
    for module, mode in zip(made.modules(), modes, strict=True):
        module.training = mode
    return made


def _check_numbers(**numbers: float) -> None:
    for name, value in numbers.items():
        if not (math.isfinite(value) and value >= 0):
            raise ArgumentError(f"{name} is a finite number of at least 0, not {value!r}")


def _warn_swapped(small: nn.Module, teacher: nn.Module) -> None:
    ours, theirs = (sum(p.numel() for p in model.parameters()) for model in (small, teacher))
    if ours > theirs:
        warnings.warn(
            f"the model to heal has {ours:,} parameters and its teacher {theirs:,}; the smaller "
            "model comes first: heal(small, teacher, batches)",
            stacklevel=3,
        )


class _Best:
    """The state of a model with the smallest loss on the batches held back."""

    def __init__(self, model: nn.Module, teacher: nn.Module, loss: _Loss, batches: Batches):
        self._model, self._of = model, loss
        few = list(itertools.islice(batches, SHARE * HELD))
        self._read = [x for i, x in enumerate(few) if not held_back(i)][:HELD]
        self.correct = Correction(teacher, self._read)
        self._held = [(x, loss.target(x)) for i, x in enumerate(few) if held_back(i)]
        self.loss, self.state = self._measured(), copy.deepcopy(model.state_dict())
        self.seen()

    def seen(self) -> float:
        """The loss of the model as it is now, which is kept if it is the best."""
        reestimate(self._model, self._read)
        self.correct(self._model)
        found = self._measured()
        if found < self.loss:
            self.loss, self.state = found, copy.deepcopy(self._model.state_dict())
        return found

    @torch.no_grad()
    def _measured(self) -> float:
        self._model.eval()
        return sum(float(self._of(*one)) for one in self._held) / len(self._held)


class _Loss:
    """How far a model is from another one, in outputs and in states."""

    def __init__(self, small: nn.Module, teacher: nn.Module, trajectory: float):
        self._small, self._teacher, self._weight = small, teacher, trajectory
        self._pairs: list[tuple[ODEBlock, ODEBlock, list[float], list[float]]] = []
        ours, theirs = blocks(small), blocks(teacher)
        if ours.keys() != theirs.keys():
            raise ArgumentError(
                f"the models have different blocks, {sorted(ours)} and {sorted(theirs)}; the "
                "teacher is the model that the smaller one was made from"
            )
        for name, block in ours.items():
            self._pairs.append((block, theirs[name], _ends(block), _ends(block)))

    @torch.no_grad()
    def align(self, batch: Any) -> None:
        """Find the common depths of blocks whose spans differ, as the fit of layers leaves them.

        The ends of the smaller one's steps are paired with those of the larger one whose states
        are nearest, in order.
        """
        for i, (block, other, depths, _) in enumerate(self._pairs):
            if block.span == other.span:
                continue
            with as_blocks(self._small, self._teacher):
                args, kwargs = inputs_of(self._small, block, batch)
                given, named = inputs_of(self._teacher, other, batch)
            ours = block.solve(*args, save_at=depths, **kwargs).z
            every = _ends(other)
            theirs = other.solve(*given, save_at=every, **named).z
            errors = [[float(relative_error(a, b)) for b in theirs] for a in ours]
            self._pairs[i] = block, other, depths, [every[j] for j in _in_order(errors)]

    @torch.no_grad()
    def target(self, batch: Any) -> Target:
        """What the larger model gives for a batch: its output, and its states."""
        return self._followed(self._teacher, batch, 1)

    def __call__(self, batch: Any, wanted: Target) -> Tensor:
        target, states = wanted
        found, own = self._followed(self._small, batch, 0)
        loss = relative_error(found, target)
        if own:
            gaps = [relative_error(a, b) for a, b in zip(own, states, strict=True)]
            loss = loss + self._weight * torch.stack(gaps).mean()
        return loss

    def _followed(self, model: nn.Module, batch: Any, which: int) -> Target:
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

        for ours, theirs, at_ours, at_theirs in self._pairs:
            block, depths = ((ours, at_ours), (theirs, at_theirs))[which]
            saved[block] = solved(block, depths)
        try:
            for block, forward in saved.items():
                vars(block)["forward"] = forward
            with as_blocks(model):
                return call(model, batch), states
        finally:
            for block in saved:
                del vars(block)["forward"]


def _ends(block: ODEBlock) -> list[float]:
    """The ends of a block's steps; of a solver that chooses its own, that of its span."""
    start, end = block.span
    n = block.solver.steps or 1
    return [start + (end - start) * i / n for i in range(1, n + 1)]


def _in_order(errors: list[list[float]]) -> list[int]:
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


def _training(model: nn.Module) -> None:
    """Norms read the batch; all else, dropout among it, is in evaluation mode."""
    model.eval()
    for module in model.modules():
        if isinstance(module, _NormBase):
            module.training = True


def _rate(steps: int) -> Callable[[int], float]:
    """The learning rate at each step, relative to the largest."""
    return lambda i: min(10 * (i + 1) / steps, (1 + math.cos(math.pi * i / steps)) / 2)


def _endless(batches: Batches, loss: _Loss) -> Iterator[tuple[Any, Target]]:
    """The batches that are not held back, again and again, with what the larger model gives."""
    kept: dict[int, Target] = {}
    room = KEPT if batches.repeatable else 0
    while True:
        for i, batch in enumerate(batches):
            if held_back(i) and i < SHARE * HELD:
                continue
            wanted = kept.get(i) or loss.target(batch)
            if i not in kept and (room := room - _bytes(wanted)) >= 0:
                kept[i] = wanted
            yield batch, wanted


def _bytes(target: Target) -> int:
    return sum(leaf.nbytes for leaf in tree_leaves(target) if isinstance(leaf, Tensor))
