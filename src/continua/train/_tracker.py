"""Experiment trackers, through accelerate."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal, get_args

from continua._errors import ArgumentError, MissingPackageError

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
    """What a training tells its trackers; without any, nothing."""

    def __init__(self, accelerator: Accelerator, about: Mapping[str, Any]):
        self.accelerator = accelerator
        if accelerator.log_with:
            plain = {
                name: value if isinstance(value, bool | int | float | str) else str(value)
                for name, value in about.items()
            }
            accelerator.init_trackers("continua", config=plain)

    def epoch(self, line: Mapping[str, Any]) -> None:
        """Tell the measures of an epoch."""
        if not self.accelerator.log_with:
            return
        values = {"rate": line["rate"], "parameters": line["parameters"]}
        for part in ("train", "validation"):
            values |= {f"{part}/{name}": value for name, value in line.get(part, {}).items()}
        self.accelerator.log(values, step=line["step"])

    def close(self) -> None:
        """End, so that everything is written."""
        if self.accelerator.log_with:
            self.accelerator.end_training()
