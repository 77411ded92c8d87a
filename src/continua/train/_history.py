"""The outcome of a training, and the measures of each epoch."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from continua._errors import FileError
from continua._tables import html_table
from continua.files import entry, parse_json, read_bytes, write_whole

from ._checkpoint import Position

log = logging.getLogger("continua.train")

METRICS = "metrics.jsonl"


def read_history(folder: Path) -> list[dict[str, Any]]:
    """The lines of `metrics.jsonl`; of a damaged file those before the damage, with a warning."""
    path = folder / METRICS
    if not path.exists():
        return []
    lines: list[dict[str, Any]] = []
    content = read_bytes(path).splitlines()
    for number, text in enumerate(content, 1):
        where = f"line {number} of {path}"
        try:
            line = parse_json(text, where)
            for name, kind in (("step", int), ("epoch", int), ("functions", object)):
                entry(line, name, kind, where)
            entry(line, "train", dict, where)
        except FileError as error:
            lost = len(content) - number + 1
            log.warning("%s; this line and all after it, %d in all, are lost", error, lost)
            break
        lines.append(line)
    return lines


def write_history(folder: Path, lines: Sequence[dict[str, Any]]) -> None:
    """Write all lines, whole or not at all."""
    content = "".join(json.dumps(line) + "\n" for line in lines)
    write_whole(folder / METRICS, content.encode())


@dataclass(frozen=True, repr=False)
class Outcome:
    """The result of a training.

    Attributes:
        model: of the best evaluation, or of the last step without a validation part; a
            `continua.Elastic` if the training is elastic.
        position: where the training ended.
        history: what `metrics.jsonl` holds.
    """

    model: nn.Module
    position: Position
    history: list[dict[str, Any]]

    def rows(self) -> list[tuple[str, str]]:
        """A summary: a name and a value per row."""
        last = self.history[-1] if self.history else {}
        count = sum(p.numel() for p in self.model.parameters())
        rows = [
            ("model", f"{type(self.model).__name__}, {count:,} parameters"),
            ("epochs", str(self.position.epoch)),
            ("steps", f"{self.position.step:,}"),
            ("seconds", f"{self.position.seconds:.1f}"),
        ]
        for part in ("train", "validation"):
            rows += [(f"{part} {name}", f"{v:.4g}") for name, v in last.get(part, {}).items()]
        best = self.position.best
        return rows if best is None else [*rows, ("best validation", f"{best:.4g}")]

    def __repr__(self) -> str:
        return f"Outcome({', '.join(f'{name}: {value}' for name, value in self.rows())})"

    def _repr_html_(self) -> str:
        return html_table([("Outcome", ""), *self.rows()])
