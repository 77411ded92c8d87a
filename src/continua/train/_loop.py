"""The training loop."""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from continua._errors import ArgumentError, ContinuaError, FileError, SolveError
from continua.measure import count_evaluations
from continua.transform import Elastic, refine

from ._checkpoint import Checkpoints, Position, read, restore
from ._config import Training
from ._elastic import Seen, elastic, further_loss, plain
from ._evaluate import evaluate
from ._files import make_folder
from ._history import METRICS, board, read_history, write_history
from ._process import Stop, accelerator, stopping
from ._progress import Progress, Watch, silent
from ._random import borrowed, mixed, seed
from ._same import check_same
from ._size import functions, halved
from ._task import Tally, Task

# What a seed is for, so that no two things draw the same numbers.
ORDER, AUGMENTATION, NOISE = 1, 2, 3

log = logging.getLogger("continua.train")


class Interrupted(ContinuaError):  # noqa: N818 - not an error
    """The training was asked to stop, and stands in its last checkpoint."""


@dataclass(frozen=True)
class Outcome:
    """What a training came to.

    Attributes:
        model: of the best evaluation, or of the end without a validation part; a
            `continua.Elastic` if the training is elastic.
        position: where the training ended.
        history: what `metrics.jsonl` holds.
    """

    model: nn.Module
    position: Position
    history: list[dict[str, Any]]


def fit(
    make: Callable[[], nn.Module],
    task: Task,
    training: Training,
    folder: str | os.PathLike[str],
    *,
    device: str = "auto",
    channels_last: bool = False,
    watch: Watch = silent,
) -> Outcome:
    """Train a model, or go on with a training that stopped.

    Everything is written to the folder: a line of measures per epoch, and checkpoints from which
    the same call goes on, on the CPU to the same bits. For a model with ODE blocks the measures
    have the mean evaluations of a step, forward and backward (see `count_evaluations`).
    Ctrl-C, or the signal that ends a job, finishes the batch, saves, and raises `Interrupted`. A
    training that is finished is only read.
    On several processes, started with `accelerate launch` or, on the CPU, with `torchrun`, each
    takes its share of every batch.
    The caller's random generators are left as they were.

    A folder goes on only with the model and the course that it began with; `evaluate_every`,
    `patience`, `checkpoint_minutes` and `tensorboard` may change, and `epochs` to more than it has.
    Schedules that end with the last epoch then rise again.

    Args:
        make: makes the model to start from, by `continua.build` so that it can be saved. The
            seed is set before. Also called to go on, to see that the folder is of this model.
        task: data, loss and measures.
        training: the course.
        folder: of the run.
        device: auto, cpu, cuda, mps or cuda:1 and so on.
        channels_last: whether images and kernels lie in memory channel by channel, which suits
            some processors better.
        watch: called as the training goes on.
    """
    with borrowed():
        return _Fit(make, task, training, Path(folder), device, channels_last, watch).run()


class _Fit:
    def __init__(
        self,
        make: Callable[[], nn.Module],
        task: Task,
        training: Training,
        folder: Path,
        device: str,
        channels_last: bool,
        watch: Watch,
    ):
        self.task, self.training, self.folder = task, training, folder
        self.channels_last = channels_last
        self.accelerator = accelerator(device, training.precision)
        self.watch = watch if self.main else silent
        self.device = self.accelerator.device
        samples = task.size("train")
        if samples == 0:
            raise ArgumentError("the training part is empty")
        self.batch_size = min(training.batch_size, samples)
        if self.batch_size % self.accelerator.num_processes:
            raise ArgumentError(
                f"batch_size={self.batch_size} cannot be shared by "
                f"{self.accelerator.num_processes} processes"
            )
        self.per_pass = samples // self.batch_size
        self.per_epoch = training.epoch_steps or self.per_pass
        make_folder(folder)
        self.checkpoints = Checkpoints(folder)
        self.history: list[dict[str, Any]] = []
        self.order: tuple[int, Tensor] = (-1, torch.empty(0))
        self.about = {"training": training.config(), "samples": samples}
        self._begin(make)
        self.board = (
            board(folder, self.position.step) if training.tensorboard and self.main else None
        )

    @property
    def main(self) -> bool:
        return bool(self.accelerator.is_main_process)

    # -- beginning and going on ----------------------------------------------------------------

    def _begin(self, make: Callable[[], nn.Module]) -> None:
        if self.main:
            self.checkpoints.clean()
            for stale in self.folder.glob(f".{METRICS}-*"):
                stale.unlink(missing_ok=True)
        seed(self.training.seed)
        model = elastic(make(), self.training)
        last = self.checkpoints.last()
        self.accelerator.wait_for_everyone()  # before anyone writes what others look for
        if last is None:
            self.position = Position()
            self._take(model)
            self._write_history()
            # So that a model or a disk that cannot be written is found out before any work.
            self._save(best=False)
            return
        saved, self.position, state, tensors = read(last)
        check_same(self.folder, saved, model, state["about"], self.about)
        if self.position.epoch > self.training.epochs:
            raise ArgumentError(
                f"{self.folder} has {self.position.epoch} epochs already, more than "
                f"epochs={self.training.epochs}; choose another folder"
            )
        self._take(saved)
        try:
            restore(self.optimizer.optimizer, state, tensors)
            if state["scaler"] is not None and self.accelerator.scaler is not None:
                self.accelerator.scaler.load_state_dict(state["scaler"])
        except (KeyError, ValueError, TypeError, RuntimeError) as error:
            raise FileError(
                f"the checkpoint {last} is damaged ({error}); move it elsewhere to go on "
                "from the one before it"
            ) from error
        if not self.checkpoints.has_best():
            self.position.best = None
        self.position.finished = self._is_finished()
        self.history = [
            line for line in read_history(self.folder) if line["step"] <= self.position.step
        ]
        self._write_history()
        log.info("going on from %s", last)

    def _take(self, model: nn.Module) -> None:
        """Train this model from here on, with a fresh optimizer."""
        model = self._laid_out(model)
        self.model = model
        self.wrapped = model
        if self.accelerator.num_processes > 1:
            self.wrapped = self.accelerator.prepare_model(model)
            # Mixed precision is ours to switch on, in `_step`; the model itself stays as it is,
            # for its evaluation, its copies and its file.
            for name in ("forward", "_original_forward"):
                model.__dict__.pop(name, None)
        self.optimizer = self.accelerator.prepare_optimizer(self.training.make_optimizer(model))

    def _laid_out(self, model: nn.Module) -> nn.Module:
        model = model.to(self.device)
        if self.channels_last:
            model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        return model

    # -- the course ----------------------------------------------------------------------------

    def run(self) -> Outcome:
        training, position = self.training, self.position
        try:
            with stopping() as stop:
                while not position.finished:
                    self._change_size()
                    self._epoch(stop)
                    self._close_epoch()
                    if not position.finished and self._any(stop.asked)[0]:
                        raise self._interrupted()
        finally:
            if self.board is not None:
                self.board.close()
        best = self.checkpoints.best()
        assert best is not None
        model = self._laid_out(read(best)[0]).eval()
        self.watch(Progress("training", training.epochs, training.epochs, self._note()))
        return Outcome(model, position, self.history)

    def _change_size(self) -> None:
        """Refine or project, where this epoch begins with it."""
        position, training = self.position, self.training
        if position.batch:
            return
        if position.epoch in training.refine_epochs:
            model = refine(self.model)
        elif position.epoch in training.project_epochs:
            model = halved(self.model)
        else:
            return
        self.accelerator.free_memory()  # it holds on to the old model and optimizer
        self._take(model)
        position.best, position.stale = None, 0
        if self.main:
            self.checkpoints.forget_best()

    def _epoch(self, stop: Stop) -> None:
        position = self.position
        tally = Tally(position.sums, position.counts)
        self.model.train()
        started = time.monotonic()
        written, before = started, position.seconds
        while position.batch < self.per_epoch:
            tally.merge(self._step())
            position.batch += 1
            position.step += 1
            now = time.monotonic()
            position.seconds = before + now - started
            self.watch(
                Progress("training", position.epoch, self.training.epochs, self._note(tally))
            )
            if position.batch == self.per_epoch:
                return  # the end of an epoch is saved with its measures
            overdue = now - written > 60 * self.training.checkpoint_minutes
            asked, overdue = self._any(stop.asked, overdue)
            if asked or overdue:
                self._save(best=False)
                written = now
            if asked:
                raise self._interrupted()

    def _interrupted(self) -> Interrupted:
        position = self.position
        return Interrupted(
            f"stopped in epoch {position.epoch + 1} of {self.training.epochs}, after "
            f"{position.step} steps; everything is in {self.folder}: run the same command "
            "again to go on"
        )

    def _step(self) -> Tally:
        training, position = self.training, self.position
        rate = training.rate(position.epoch + position.batch / self.per_epoch)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        index = self._index()
        generator = torch.Generator().manual_seed(
            mixed(training.seed, AUGMENTATION, position.step, self.accelerator.process_index)
        )
        # Dropout and the like: the same in a run that was stopped, another in every process.
        torch.manual_seed(
            mixed(training.seed, NOISE, position.step, self.accelerator.process_index)
        )
        batch = [self._placed(t) for t in self.task.batch("train", index, generator)]
        with count_evaluations(self.model) as evaluations:
            tally = self._differentiate(batch)
        if evaluations.solves:
            tally.add("evaluations", evaluations.forward, 1)
            tally.add("backward_evaluations", evaluations.backward, 1)
        if training.clip is not None:
            self.accelerator.clip_grad_norm_(self.wrapped.parameters(), training.clip)
        self.optimizer.step()
        return self._total(tally)

    def _differentiate(self, batch: Sequence[Tensor]) -> Tally:
        """The gradient of the loss of a batch, and what was measured of it."""
        position = self.position
        try:
            with self.accelerator.autocast():
                seen = Seen(self.wrapped) if isinstance(self.model, Elastic) else self.wrapped
                found = self.task.loss(seen, batch)
                further = further_loss(
                    self.task, self.model, seen, batch, self.training, position.step
                )
        except ContinuaError as error:
            # A block refuses what a diverged layer before it gives; the data are not to blame.
            if all(bool(torch.isfinite(p).all()) for p in self.model.parameters()):
                raise
            raise SolveError(
                f"the weights are no longer finite at step {position.step}, epoch "
                f"{position.epoch + 1}: try a lower learning_rate, warmup or clip"
            ) from error
        if not (isinstance(found, tuple) and len(found) == 2):
            raise ArgumentError(
                f"{type(self.task).__name__}.loss returns the loss and a Tally, not a "
                f"{type(found).__name__}"
            )
        loss, tally = found
        if further is not None:
            loss = loss + further
        value = float(loss.detach())
        if self._any(not math.isfinite(value))[0]:
            raise SolveError(
                f"the training loss is {value:g} at step {position.step}, epoch "
                f"{position.epoch + 1}: try a lower learning_rate, warmup or clip"
            )
        self.optimizer.zero_grad()
        self.accelerator.backward(loss)
        return tally

    def _index(self) -> Tensor:
        """The samples of this step and process; every pass over the data is a permutation."""
        number, within = divmod(self.position.step, self.per_pass)
        if self.order[0] != number:
            generator = torch.Generator().manual_seed(mixed(self.training.seed, ORDER, number))
            self.order = (number, torch.randperm(self.task.size("train"), generator=generator))
        batch = self.order[1][within * self.batch_size : (within + 1) * self.batch_size]
        return batch[self.accelerator.process_index :: self.accelerator.num_processes]

    # -- what all processes agree on -----------------------------------------------------------

    def _any(self, *flags: bool) -> list[bool]:
        """Whether each of these is so in any process: they must all take the same turn."""
        if self.accelerator.num_processes == 1:
            return list(flags)
        mine = torch.tensor([float(flag) for flag in flags], device=self.device)
        return [bool(flag) for flag in self.accelerator.reduce(mine, "sum").tolist()]

    def _total(self, tally: Tally) -> Tally:
        """The sum over all processes."""
        if self.accelerator.num_processes == 1:
            return tally
        names = sorted(tally.sums)
        mine = [[tally.sums[name], tally.counts[name]] for name in names]
        tensor = torch.tensor(mine, dtype=torch.float64, device=self.device)  # [names, 2]
        totals = self.accelerator.reduce(tensor, "sum").tolist()
        return Tally(
            {name: total for name, (total, _) in zip(names, totals, strict=True)},
            {name: count for name, (_, count) in zip(names, totals, strict=True)},
        )

    def _evaluated(self) -> dict[str, float]:
        """The measures on the validation part, taken once: each process has its own statistics."""
        model = plain(self.model)
        found = [evaluate(model, self.task, device=self.device) if self.main else {}]
        if self.accelerator.num_processes > 1:
            from accelerate.utils import broadcast_object_list

            broadcast_object_list(found)
        return found[0]

    def _placed(self, tensor: Tensor) -> Tensor:
        tensor = tensor.to(self.device)
        if self.channels_last and tensor.dim() == 4:
            return tensor.contiguous(memory_format=torch.channels_last)
        return tensor

    # -- the end of an epoch -------------------------------------------------------------------

    def _close_epoch(self) -> None:
        position, training = self.position, self.training
        started = time.monotonic()
        position.epoch += 1
        position.batch = 0
        train = Tally(position.sums, position.counts).means()
        position.sums, position.counts = {}, {}
        last = position.epoch >= training.epochs
        line: dict[str, Any] = {
            "epoch": position.epoch,
            "step": position.step,
            "rate": training.rate(position.epoch - 1 / self.per_epoch),
            "parameters": sum(p.numel() for p in self.model.parameters()),
            "functions": functions(self.model),
            "train": train,
        }
        best = False
        validated = position.epoch % training.evaluate_every == 0 or last
        if validated and self.task.size("validation"):
            line["validation"] = measures = self._evaluated()
            if self.task.measure not in measures:
                known = ", ".join(measures) or "nothing"
                raise ArgumentError(
                    f"{type(self.task).__name__}.measure is {self.task.measure!r}, but its loss "
                    f"counts {known}"
                )
            best = self._is_best(measures[self.task.measure])
        position.seconds += time.monotonic() - started
        line["seconds"] = round(position.seconds, 2)
        position.finished = self._is_finished()
        self.history.append(line)
        self._write_history()
        self._save(best)
        self._report(line)

    def _is_finished(self) -> bool:
        position, patience = self.position, self.training.patience
        if position.epoch >= self.training.epochs:
            return True
        changes = (*self.training.refine_epochs, *self.training.project_epochs)
        waiting = any(epoch >= position.epoch for epoch in changes)
        between = position.batch == 0
        return patience is not None and position.stale >= patience and between and not waiting

    def _is_best(self, value: float) -> bool:
        position = self.position
        better = (
            position.best is None
            or math.isnan(position.best)
            or (value > position.best if self.task.higher else value < position.best)
        )
        position.stale = 0 if better else position.stale + 1
        position.best = value if better else position.best
        return better

    def _save(self, best: bool) -> None:
        if self.main:
            scaler = self.accelerator.scaler
            self.checkpoints.write(
                self.model,
                self.optimizer.optimizer,
                self.position,
                None if scaler is None else scaler.state_dict(),
                best,
                self.about,
            )
        self.accelerator.wait_for_everyone()

    def _write_history(self) -> None:
        if self.main:
            write_history(self.folder, self.history)

    def _report(self, line: dict[str, Any]) -> None:
        if self.board is not None:
            for part in ("train", "validation"):
                for name, value in line.get(part, {}).items():
                    self.board.add_scalar(f"{part}/{name}", value, line["step"])
            self.board.add_scalar("rate", line["rate"], line["step"])
            self.board.flush()
        self.watch(Progress("training", line["epoch"], self.training.epochs, self._note()))

    def _note(self, running: Tally | None = None) -> str:
        words = []
        if running is not None:
            share = self.position.batch / self.per_epoch
            loss = running.means().get("loss")
            words.append(f"{share:4.0%} of epoch {self.position.epoch + 1}")
            words += [] if loss is None else [f"loss {loss:.3f}"]
        elif self.history:
            line = self.history[-1]
            if line["functions"] is not None:
                words.append(f"K={line['functions']}")
            words.append(f"loss {line['train'].get('loss', float('nan')):.3f}")
            if "validation" in line:
                value = line["validation"][self.task.measure]
                words.append(f"validation {self.task.measure} {value:.4f}")
        return ", ".join(words)
