"""Experiment trackers, and TensorBoard without them."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from continua._errors import ArgumentError, MissingPackageError

from ._config import Training

if TYPE_CHECKING:
    from accelerate import Accelerator

TrackerName = Literal["wandb", "mlflow", "tensorboard"]


def checked_tracker(log: Any) -> Any:
    """The name of a tracker whose package is installed, or a tracker of accelerate itself."""
    if log is None or not isinstance(log, str):
        return log
    if log not in get_args(TrackerName):
        known = ", ".join(get_args(TrackerName))
        raise ArgumentError(f"log is one of {known} or a tracker of accelerate, not {log!r}")
    if find_spec(log) is None:
        raise MissingPackageError(
            f"log={log!r} needs the package {log}, which is not installed", package=log
        )
    return log


class Tracking:
    """The trackers of a training, if it has any; `step` is the step after which it goes on."""

    def __init__(self, accelerator: Accelerator, training: Training, folder: Path, step: int):
        self.accelerator, self.board = accelerator, None
        if accelerator.log_with:
            config = {
                name: value if isinstance(value, bool | int | float | str) else str(value)
                for name, value in training.config().items()
            }
            accelerator.init_trackers("continua", config=config)
        if training.tensorboard and accelerator.is_main_process:
            self.board = _tensorboard(folder, step)

    def log(self, line: Mapping[str, Any]) -> None:
        """Log the measures of an epoch."""
        values = {"rate": line["rate"]}
        for part in ("train", "validation"):
            values |= {f"{part}/{name}": value for name, value in line.get(part, {}).items()}
        if self.board is not None:
            for name, value in values.items():
                self.board.add_scalar(name, value, line["step"])
            self.board.flush()
        if self.accelerator.log_with:
            values["parameters"] = line["parameters"]
            self.accelerator.log(values, step=line["step"])

    def close(self) -> None:
        """End, so that everything is written."""
        if self.board is not None:
            self.board.close()
        if self.accelerator.log_with:
            self.accelerator.end_training()


def _tensorboard(folder: Path, step: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise ArgumentError(
            "tensorboard=True needs the package tensorboard; install it, or leave the option out: "
            "metrics.jsonl is always written"
        ) from error
    # The events of a run that was killed, after its last checkpoint, are written again.
    return SummaryWriter(folder / "tensorboard", purge_step=step + 1)
