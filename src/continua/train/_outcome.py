"""What comes of a training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import nn

from continua._tables import html_table

from ._checkpoint import Position


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
        """What came of it: a name and a value per row."""
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
