"""The processes that train, and their end."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from continua._errors import ArgumentError, ContinuaError

if TYPE_CHECKING:
    from accelerate import Accelerator

DEVICE = "ACCELERATE_TORCH_DEVICE"


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
    before = os.environ.get(DEVICE)
    try:
        if device not in ("auto", "cpu"):
            os.environ[DEVICE] = device
        return Accelerator(cpu=device == "cpu", mixed_precision=precision)
    except (RuntimeError, ValueError, AssertionError) as error:
        first = next(iter(str(error).splitlines()), type(error).__name__)
        raise ArgumentError(
            f"cannot train on device {device!r} with precision {precision!r}: {first}"
        ) from None
    finally:
        if before is None:
            os.environ.pop(DEVICE, None)
        else:
            os.environ[DEVICE] = before


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
            # None: it was set by something other than Python, which cannot put it back.
            signal.signal(name, signal.SIG_DFL if handler is None else handler)
