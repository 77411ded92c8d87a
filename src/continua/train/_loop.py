"""The training loop."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from continua._errors import ArgumentError, ContinuaError, FileError, SolveError
from continua.basis import Basis
from continua.block import ODEBlock
from continua.transform import blocks, compress, refine

from ._checkpoint import Checkpoints, Position, read, restore
from ._config import Training
from ._evaluate import evaluate
from ._files import make_folder, write_whole
from ._progress import Progress, Watch, silent
from ._task import Tally, Task

if TYPE_CHECKING:
    from accelerate import Accelerator

METRICS = "metrics.jsonl"

log = logging.getLogger("continua.train")


class Interrupted(ContinuaError):  # noqa: N818 - not an error
    """The training was asked to stop, and stands in its last checkpoint."""


@dataclass(frozen=True)
class Outcome:
    """What a training came to.

    Attributes:
        model: of the best evaluation, or of the end without a validation part.
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
    the same call goes on, on the CPU to the same bits. Ctrl-C, or the signal that ends a job,
    finishes the batch, saves, and raises `Interrupted`. On several processes, started with
    `accelerate launch`, each takes its share of every batch.

    Args:
        make: makes the model to start from, by `continua.build` so that it can be saved. The
            seed is set before.
        task: data, loss and measures.
        training: the course.
        folder: of the run.
        device: auto, cpu, cuda, mps or cuda:1 and so on.
        channels_last: whether images and kernels lie in memory channel by channel, which suits
            some processors better.
        watch: called as the training goes on.
    """
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
        self.task, self.training, self.folder, self.watch = task, training, folder, watch
        self.channels_last = channels_last
        self.accelerator = accelerator(device, training.precision)
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
        self.board = _board(folder) if training.tensorboard and self.main else None
        self._begin(make)

    @property
    def main(self) -> bool:
        return bool(self.accelerator.is_main_process)

    # -- beginning and going on ----------------------------------------------------------------

    def _begin(self, make: Callable[[], nn.Module]) -> None:
        last = self.checkpoints.last()
        if last is None:
            seed(self.training.seed)
            self.position = Position()
            self._take(make())
            self._write_history()
            return
        model, self.position, state, tensors = read(last)
        model.train()
        self._take(model)
        restore(self.optimizer.optimizer, state, tensors)
        if state["scaler"] is not None and self.accelerator.scaler is not None:
            self.accelerator.scaler.load_state_dict(state["scaler"])
        self.history = [
            line for line in read_history(self.folder) if line["step"] <= self.position.step
        ]
        self._write_history()
        log.info("going on from %s", last)

    def _take(self, model: nn.Module) -> None:
        """Train this model from here on, with a fresh optimizer."""
        model = model.to(self.device)
        if self.channels_last:
            model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.model = model
        self.wrapped = model
        if self.accelerator.num_processes > 1:
            self.wrapped = self.accelerator.prepare_model(model)
        self.optimizer = self.accelerator.prepare_optimizer(self.training.make_optimizer(model))

    # -- the course ----------------------------------------------------------------------------

    def run(self) -> Outcome:
        training, position = self.training, self.position
        with stopping() as stop:
            while not position.finished:
                self._change_size()
                self._epoch(stop)
                self._close_epoch()
        best = self.checkpoints.best()
        assert best is not None
        model = read(best)[0].to(self.device).eval()
        self.watch(Progress("training", training.epochs, training.epochs, self._note()))
        return Outcome(model, position, self.history)

    def _change_size(self) -> None:
        """Refine or project, where this epoch begins with it."""
        position, training = self.position, self.training
        if position.batch:
            return
        if position.epoch in training.refine_epochs:
            self._take(refine(self.model))
        elif position.epoch in training.project_epochs:
            self._take(halved(self.model))
        else:
            return
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
            overdue = now - written > 60 * self.training.checkpoint_minutes
            if (stop.asked or overdue) and position.batch < self.per_epoch:
                self._save(best=False)
                written = now
            if stop.asked and position.batch < self.per_epoch:
                raise Interrupted(
                    f"stopped at epoch {position.epoch + 1} of {self.training.epochs}, after "
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
            mixed(training.seed, position.step, self.accelerator.process_index)
        )
        batch = [self._placed(t) for t in self.task.batch("train", index, generator)]
        with self.accelerator.autocast():
            loss, tally = self.task.loss(self.wrapped, batch)
        if not bool(torch.isfinite(loss.detach())):
            raise SolveError(
                f"the training loss is {float(loss):g} at step {position.step}, epoch "
                f"{position.epoch + 1}: try a lower learning_rate, warmup or clip"
            )
        self.optimizer.zero_grad()
        self.accelerator.backward(loss)
        if training.clip is not None:
            self.accelerator.clip_grad_norm_(self.wrapped.parameters(), training.clip)
        self.optimizer.step()
        return tally

    def _index(self) -> Tensor:
        """The samples of this step and process; every pass over the data is a permutation."""
        number, within = divmod(self.position.step, self.per_pass)
        if self.order[0] != number:
            generator = torch.Generator().manual_seed(mixed(self.training.seed, number))
            self.order = (number, torch.randperm(self.task.size("train"), generator=generator))
        batch = self.order[1][within * self.batch_size : (within + 1) * self.batch_size]
        return batch[self.accelerator.process_index :: self.accelerator.num_processes]

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
        last = position.epoch == training.epochs
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
            line["validation"] = evaluate(self.model, self.task, device=self.device)
            best = self._is_best(line["validation"][self.task.measure])
        position.seconds += time.monotonic() - started
        line["seconds"] = round(position.seconds, 2)
        patience = training.patience
        waiting = any(e >= position.epoch for e in training.refine_epochs)
        tired = patience is not None and position.stale >= patience and not waiting
        position.finished = last or tired
        self.history.append(line)
        self._report(line)
        self._write_history()
        self._save(best)

    def _is_best(self, value: float) -> bool:
        position = self.position
        better = position.best is None or (
            value > position.best if self.task.higher else value < position.best
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
            )
        self.accelerator.wait_for_everyone()

    def _write_history(self) -> None:
        if self.main:
            content = "".join(json.dumps(line) + "\n" for line in self.history)
            write_whole(self.folder / METRICS, content.encode())

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


# -- small parts -------------------------------------------------------------------------------


def accelerator(device: str, precision: str) -> Accelerator:
    """Accelerate's view of this machine, or of the part of a cluster that is ours."""
    try:
        from accelerate import Accelerator
        from accelerate.state import AcceleratorState
    except ImportError as error:
        raise ContinuaError(
            "training needs accelerate; install with `pip install 'continua[recipes]'`"
        ) from error
    AcceleratorState._reset_state(reset_partial_state=True)  # an earlier training's choices
    if device not in ("auto", "cpu"):
        os.environ["ACCELERATE_TORCH_DEVICE"] = device
    else:
        os.environ.pop("ACCELERATE_TORCH_DEVICE", None)
    try:
        return Accelerator(cpu=device == "cpu", mixed_precision=precision)
    except (RuntimeError, ValueError, AssertionError) as error:
        first = str(error).splitlines()[0]
        raise ArgumentError(
            f"cannot train on device {device!r} with precision {precision!r}: {first}"
        ) from None


def seed(value: int) -> None:
    """Seed every generator that a model may draw its first weights from."""
    import random

    random.seed(value)
    np.random.seed(value)
    torch.manual_seed(value)


def mixed(*numbers: int) -> int:
    """A seed made of several numbers."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> 1)


def halved(model: nn.Module) -> nn.Module:
    """The model with half the basis functions and half the steps, by projection."""

    def half(basis: Basis) -> Basis:
        return type(basis).of_size(max(basis.size // 2, 1))

    bases, states, solvers = {}, {}, {}
    for name, block in blocks(model).items():
        bases[name] = {n: half(basis) for n, basis in block.expansion.weights.items()}
        states[name] = {n: half(basis) for n, basis in block.expansion.state.items()}
        steps = block.solver.config().get("steps")
        solvers[name] = (
            block.solver if steps is None else block.solver.with_steps(max(steps // 2, 1))
        )
    return compress(model, bases, state_basis=states, solver=solvers)


def functions(model: nn.Module) -> int | None:
    """The largest basis of the model; None without blocks."""
    sizes = [
        basis.size
        for module in model.modules()
        if isinstance(module, ODEBlock)
        for basis in module.expansion.weights.values()
    ]
    return max(sizes, default=None)


def read_history(folder: Path) -> list[dict[str, Any]]:
    """The lines of `metrics.jsonl`."""
    path = folder / METRICS
    if not path.exists():
        return []
    try:
        return [json.loads(line) for line in path.read_text("utf-8").splitlines() if line]
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise FileError(f"{path} cannot be read: {error}") from error


def _board(folder: Path) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise ArgumentError(
            "tensorboard=True needs the package tensorboard; install it, or leave the option out: "
            "metrics.jsonl is always written"
        ) from error
    return SummaryWriter(folder / "tensorboard")


@dataclass
class Stop:
    """Whether someone asked for an end."""

    asked: bool = False


@contextlib.contextmanager
def stopping() -> Iterator[Stop]:
    """Turn the first Ctrl-C, or a request to terminate, into a wish; a second one is obeyed."""
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {}

    def asked(number: int, frame: object) -> None:
        if stop.asked:
            raise KeyboardInterrupt
        stop.asked = True

    for name in (signal.SIGINT, signal.SIGTERM):
        before[name] = signal.signal(name, asked)
    try:
        yield stop
    finally:
        for name, handler in before.items():
            signal.signal(name, handler)
