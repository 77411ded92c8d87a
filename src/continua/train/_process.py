"""The processes of a training: device, communication, requests to stop."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch
import torch.distributed as dist
from torch import nn

from continua._errors import ArgumentError, MissingPackageError, first_line

from ._task import Tally

if TYPE_CHECKING:
    from accelerate import Accelerator

T = TypeVar("T")

DEVICE = "ACCELERATE_TORCH_DEVICE"


def make_accelerator(device: str, precision: str, log: Any, folder: Path) -> Accelerator:
    """The `Accelerator` of this process, on this device, with a tracker that writes to a folder."""
    try:
        from accelerate import Accelerator
        from accelerate.state import AcceleratorState
    except ImportError as error:
        raise MissingPackageError("training needs accelerate, which is not installed") from error
    AcceleratorState._reset_state(reset_partial_state=True)  # of an earlier training
    before = os.environ.get(DEVICE)
    try:
        if device not in ("auto", "cpu"):
            os.environ[DEVICE] = device
        return Accelerator(
            cpu=device == "cpu", mixed_precision=precision, log_with=log, project_dir=folder
        )
    except (RuntimeError, ValueError, AssertionError) as error:
        raise ArgumentError(
            f"cannot train on device {device!r} with precision {precision!r}: {first_line(error)}"
        ) from None
    finally:
        if before is None:
            os.environ.pop(DEVICE, None)
        else:
            os.environ[DEVICE] = before


def any_process(accelerator: Accelerator, *flags: bool) -> list[bool]:
    """Whether each flag is set in any process, so that all processes take the same branch."""
    if accelerator.num_processes == 1:
        return list(flags)
    mine = torch.tensor([float(flag) for flag in flags], device=accelerator.device)
    return [bool(flag) for flag in accelerator.reduce(mine, "sum").tolist()]


def sum_tally(accelerator: Accelerator, tally: Tally) -> Tally:
    """The sum of a tally over all processes."""
    if accelerator.num_processes == 1:
        return tally
    names = sorted(tally.sums)
    mine = [[values[name] for name in names] for values in (tally.sums, tally.counts)]
    tensor = torch.tensor(mine, dtype=torch.float64, device=accelerator.device)  # [2, names]
    sums, counts = accelerator.reduce(tensor, "sum").tolist()
    return Tally(dict(zip(names, sums, strict=True)), dict(zip(names, counts, strict=True)))


def average_statistics(model: nn.Module) -> None:
    """Average the floating-point buffers of a model over all processes, in place.

    These are batch-norm statistics above all. Without a process group nothing happens.
    """
    if not (dist.is_available() and dist.is_initialized()):
        return
    buffers = [b.detach() for b in model.buffers() if b.is_floating_point()]
    if not buffers:
        return
    flat = torch.cat([b.flatten() for b in buffers])
    dist.all_reduce(flat)
    parts = torch.split(flat / dist.get_world_size(), [b.numel() for b in buffers])
    for buffer, part in zip(buffers, parts, strict=True):
        buffer.copy_(part.view_as(buffer))


def from_main(accelerator: Accelerator, value: T) -> T:
    """The value that the main process has."""
    values = [value]
    if accelerator.num_processes > 1:
        from accelerate.utils import broadcast_object_list

        broadcast_object_list(values)
    return values[0]


@dataclass
class Stop:
    """Whether the training was asked to stop."""

    asked: bool = False


@contextlib.contextmanager
def catch_signals() -> Iterator[Stop]:
    """Record the first Ctrl-C or request to terminate; the second one interrupts at once."""
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def handle(number: int, frame: object) -> None:
        if stop.asked:
            raise KeyboardInterrupt
        stop.asked = True

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            # None: the handler was not set from Python, so Python cannot restore it.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
