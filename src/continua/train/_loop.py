"""The training loop."""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import nn

from continua._errors import ArgumentError, ContinuaError, FileError
from continua.transform import refine

from ._checkpoint import DAMAGED, Checkpoints, Position, read, restore
from ._config import Training
from ._evaluate import evaluate
from ._files import held_alone
from ._history import METRICS, Outcome, read_history, write_history
from ._process import Stop, any_process, catch_signals, from_main, make_accelerator
from ._progress import Progress, TimeLeft, Watch, default_watch, silent
from ._random import restored_generators, seed
from ._same import check_same, describe_losses, recipe_to_save
from ._samples import task_of
from ._size import functions, halved, make_elastic, plain
from ._step import TrainingStep
from ._task import Tally, Task
from ._tracker import TrackerName, Tracking, checked_tracker

log = logging.getLogger("continua.train")


class Interrupted(ContinuaError):  # noqa: N818 - not an error
    """The training was asked to stop; its last checkpoint holds everything."""


def fit(
    make: Callable[[], nn.Module],
    task: Task | Any,
    training: Training,
    folder: str | os.PathLike[str],
    *,
    device: str = "auto",
    channels_last: bool = False,
    watch: Watch | None = None,
    log: TrackerName | Any = None,
) -> Outcome:
    """Train a model, or resume a training that stopped.

    Everything is written to the folder: a line of measures per epoch, and checkpoints from which
    the same call resumes, on the CPU to the same bits. For a model with ODE blocks the measures
    include the mean number of evaluations of a step, forward and backward (see
    `count_evaluations`). Ctrl-C, or the signal that ends a job, finishes the batch, saves, and
    raises `Interrupted`. A training that is finished is only read.
    On several processes, started with `accelerate launch` or, on the CPU, with `torchrun`, each
    takes its share of every batch. The caller's random generators are restored.

    A folder resumes only with the model and the configuration that it started with;
    `evaluate_every`, `patience`, `checkpoint_minutes` and `tensorboard` may change, and `epochs`
    may grow. Schedules that end with the last epoch then rise again.

    Args:
        make: makes the initial model, by `continua.build` so that it can be saved. The seed is
            set before. Also called to resume, to check that the folder is of this model.
        task: data, loss and measures; or data alone, as `{"train": loader, "test": loader}`.
        training: the configuration.
        folder: of the run.
        device: auto, cpu, cuda, mps or cuda:1 and so on.
        channels_last: whether images and kernels are in channels-last memory format.
        watch: called with the progress; None shows a bar with the time left on a terminal and in
            a notebook. `continua.train.silent` shows nothing.
        log: wandb, mlflow, tensorboard or a tracker of accelerate; gets the measures of epochs.
    """
    folder = Path(folder)
    with restored_generators(), held_alone(folder):
        run = _Fit(task_of(task), training, folder, device, channels_last, watch, log)
        run.start(make)
        return run.run()


class _Fit:
    def __init__(
        self,
        task: Task,
        training: Training,
        folder: Path,
        device: str,
        channels_last: bool,
        watch: Watch | None,
        log: Any,
    ):
        self.task, self.training, self.folder = task, training, folder
        tracker = checked_tracker(log)
        self.accelerator = make_accelerator(device, training.precision, tracker, folder)
        self.is_main: bool = self.accelerator.is_main_process
        watch = default_watch() if watch is None else watch
        self.watch = watch if self.is_main else silent
        self.step = TrainingStep(task, training, self.accelerator, channels_last)
        self.checkpoints = Checkpoints(folder)
        self.position = Position()
        self.history: list[dict[str, Any]] = []
        self.about = {
            "training": training.config(),
            "samples": task.size("train"),
            "processes": self.accelerator.num_processes,
        }

    # -- starting and resuming -----------------------------------------------------------------

    def start(self, make: Callable[[], nn.Module]) -> None:
        """Make the model, or read the last checkpoint."""
        if self.is_main:
            self.checkpoints.clean()
            for stale in self.folder.glob(f".{METRICS}-*"):
                stale.unlink(missing_ok=True)
        seed(self.training.seed)
        model = make_elastic(make(), self.training)
        self.recipe = recipe_to_save(model)
        last = self.checkpoints.last()
        self.accelerator.wait_for_everyone()  # before the first process writes what others read
        if last is None:
            self.step.set_model(model)
            self._write_history()
            # Fail before any work if the model or the disk cannot be written.
            self._save(best=False)
        else:
            self._resume(last, model)
        self.left = TimeLeft(self.training, self._epochs_done)
        self.tracking = Tracking(self.accelerator, self.training, self.folder, self.position.step)

    def _resume(self, last: Path, model: nn.Module) -> None:
        saved, self.position, state, tensors = read(last, self.recipe)
        position = self.position
        check_same(self.folder, saved, model, state["about"], self.about)
        if position.epoch > self.training.epochs:
            raise ArgumentError(
                f"{self.folder} has {position.epoch} epochs already, more than "
                f"epochs={self.training.epochs}; choose another folder"
            )
        self.step.set_model(saved)
        try:
            restore(self.step.optimizer.optimizer, state, tensors)
            if state["scaler"] is not None and self.accelerator.scaler is not None:
                self.accelerator.scaler.load_state_dict(state["scaler"])
        except DAMAGED as error:
            raise FileError(
                f"the checkpoint {last} is damaged ({error}); move it elsewhere to go on "
                "from the one before it"
            ) from error
        position.finished = self._is_finished()
        lines = read_history(self.folder)
        self.history = [line for line in lines if line["step"] <= position.step]
        lost = describe_losses(position, self.history, state["about"], self.about)
        if not self.checkpoints.has_best():
            if self.checkpoints.index()["best"] is not None:
                lost.append(f"the best checkpoint ({self.task.measure} {position.best})")
            position.best = None
        if lost and self.is_main:
            log.warning("%s goes on without %s", self.folder, ", and without ".join(lost))
        self._write_history()
        log.info("going on from %s", last)

    # -- epochs --------------------------------------------------------------------------------

    def run(self) -> Outcome:
        training, position = self.training, self.position
        try:
            with catch_signals() as stop:
                while not position.finished:
                    if position.batch == 0:
                        self._change_size()
                    self._train_epoch(stop)
                    self._close_epoch()
                    if not position.finished and any_process(self.accelerator, stop.asked)[0]:
                        raise self._interrupted()
        finally:
            self.tracking.close()
        best = self.checkpoints.best()
        assert best is not None
        model = self.step.place_model(read(best, self.recipe)[0]).eval()
        self.watch(Progress("training", training.epochs, training.epochs, self._last_measures()))
        return Outcome(model, position, self.history)

    @property
    def _epochs_done(self) -> float:
        return self.position.epoch + self.position.batch / self.step.per_epoch

    def _change_size(self) -> None:
        """Refine or project the model if the configuration says so for this epoch."""
        position, training = self.position, self.training
        if position.epoch in training.refine_epochs:
            model = refine(self.step.model)
        elif position.epoch in training.project_epochs:
            model = halved(self.step.model)
        else:
            return
        self.accelerator.free_memory()  # release the old model and optimizer
        self.step.set_model(model)
        position.best, position.stale = None, 0
        if self.is_main:
            self.checkpoints.forget_best()

    def _train_epoch(self, stop: Stop) -> None:
        position, per_epoch = self.position, self.step.per_epoch
        tally = Tally(position.sums, position.counts)
        self.step.model.train()
        started = saved = time.monotonic()
        before = position.seconds
        while position.batch < per_epoch:
            tally.merge(self.step(position))
            position.batch += 1
            position.step += 1
            now = time.monotonic()
            position.seconds = before + now - started
            note = f"{position.batch / per_epoch:4.0%} of epoch {position.epoch + 1}"
            if "loss" in tally.sums:
                note += f", loss {tally.means()['loss']:.3f}"
            self._show(note)
            if position.batch == per_epoch:
                return  # the end of an epoch is saved with its measures
            overdue = now - saved > 60 * self.training.checkpoint_minutes
            asked, overdue = any_process(self.accelerator, stop.asked, overdue)
            if asked or overdue:
                self._save(best=False)
                saved = now
            if asked:
                raise self._interrupted()

    def _interrupted(self) -> Interrupted:
        position = self.position
        return Interrupted(
            f"stopped in epoch {position.epoch + 1} of {self.training.epochs}, after "
            f"{position.step} steps; everything is in {self.folder}: run the same command "
            "again to go on"
        )

    # -- the end of an epoch -------------------------------------------------------------------

    def _close_epoch(self) -> None:
        position, training = self.position, self.training
        started = time.monotonic()
        position.epoch += 1
        position.batch = 0
        train = Tally(position.sums, position.counts).means()
        position.sums, position.counts = {}, {}
        line: dict[str, Any] = {
            "epoch": position.epoch,
            "step": position.step,
            "rate": training.rate(position.epoch - 1 / self.step.per_epoch),
            "parameters": sum(p.numel() for p in self.step.model.parameters()),
            "functions": functions(self.step.model),
            "train": train,
        }
        best = False
        is_due = position.epoch % training.evaluate_every == 0 or position.epoch >= training.epochs
        if is_due and self.task.size("validation"):
            line["validation"] = measures = self._evaluate()
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
        self.tracking.log(line)
        self._show(self._last_measures())

    def _evaluate(self) -> dict[str, float]:
        """The measures of the main process's model on the validation part."""
        measures = {}
        if self.is_main:
            model = plain(self.step.model)
            measures = evaluate(model, self.task, device=self.accelerator.device)
        return from_main(self.accelerator, measures)

    def _is_finished(self) -> bool:
        position, training = self.position, self.training
        if position.epoch >= training.epochs:
            return True
        changes = (*training.refine_epochs, *training.project_epochs)
        if training.patience is None or any(epoch >= position.epoch for epoch in changes):
            return False
        return position.batch == 0 and position.stale >= training.patience

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
        if self.is_main:
            scaler = self.accelerator.scaler
            self.checkpoints.write(
                self.step.model,
                self.step.optimizer.optimizer,
                self.position,
                None if scaler is None else scaler.state_dict(),
                best,
                self.about,
            )
        self.accelerator.wait_for_everyone()

    def _write_history(self) -> None:
        if self.is_main:
            write_history(self.folder, self.history)

    def _show(self, note: str) -> None:
        left = self.left(self._epochs_done)
        self.watch(Progress("training", self.position.epoch, self.training.epochs, note, left))

    def _last_measures(self) -> str:
        """The last line of the history, in words."""
        if not self.history:
            return ""
        line, words = self.history[-1], []
        if line["functions"] is not None:
            words.append(f"K={line['functions']}")
        words.append(f"loss {line['train'].get('loss', float('nan')):.3f}")
        if "validation" in line:
            value = line["validation"][self.task.measure]
            words.append(f"validation {self.task.measure} {value:.4f}")
        return ", ".join(words)
