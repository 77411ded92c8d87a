"""What a run tells of each epoch."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from continua._errors import ArgumentError, FileError

from ._files import write_whole

METRICS = "metrics.jsonl"


def read_history(folder: Path) -> list[dict[str, Any]]:
    """The lines of `metrics.jsonl`."""
    path = folder / METRICS
    if not path.exists():
        return []
    try:
        lines = [json.loads(line) for line in path.read_text("utf-8").splitlines() if line]
        if not all(isinstance(line["step"], int) for line in lines):
            raise ValueError("a step is not a number")
        for line in lines:
            if not line.keys() >= {"epoch", "functions", "train"}:
                raise ValueError(f"the line of step {line['step']} is not whole")
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise FileError(
            f"{path} cannot be read ({error}); remove it to go on without the measures so far"
        ) from error
    return lines


def write_history(folder: Path, lines: Sequence[dict[str, Any]]) -> None:
    """Write all lines, whole or not at all."""
    content = "".join(json.dumps(line) + "\n" for line in lines)
    write_whole(folder / METRICS, content.encode())


def board(folder: Path, step: int) -> Any:
    """A TensorBoard that goes on after a step."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise ArgumentError(
            "tensorboard=True needs the package tensorboard; install it, or leave the option out: "
            "metrics.jsonl is always written"
        ) from error
    # What a killed run told after its last checkpoint is told again.
    return SummaryWriter(folder / "tensorboard", purge_step=step + 1)
