"""A training of another length."""

from __future__ import annotations

from typing import Any

import continua as ct
from continua.train import Training


def scaled(old: Training, changes: dict[str, Any]) -> dict[str, Any]:
    """The epochs of a recipe at which something happens, moved along where only `epochs` changes.

    Args:
        old: the recipe's own.
        changes: what the user sets; what stands there is left alone.
    """
    epochs = changes.get("epochs")
    if not isinstance(epochs, int) or epochs < 1 or epochs == old.epochs:
        return {}
    share = epochs / old.epochs
    moved: dict[str, Any] = {}
    for name in ("refine_epochs", "project_epochs", "milestones"):
        before = getattr(old, name)
        if name in changes or not before:
            continue
        after = [round(epoch * share) for epoch in before]
        if name != "milestones":
            after = _apart(after, epochs)
            if after[0] < 1:
                wanted = ",".join(map(str, range(1, epochs)))
                line = f"'{name}=({wanted},)'" if wanted else f"'{name}=()'"
                raise ct.ArgumentError(
                    f"epochs={epochs} is too short for {name}={before}; choose fewer of them: "
                    f"--set epochs={epochs} {line}"
                )
        moved[name] = tuple(after)
    if "warmup" not in changes and old.warmup:
        moved["warmup"] = round(old.warmup * share, 4)
    return moved


def _apart(epochs: list[int], end: int) -> list[int]:
    """The same epochs, each at least one after the one before it and before the end."""
    for i in range(len(epochs)):
        epochs[i] = max(epochs[i], epochs[i - 1] + 1 if i else 1)
    for i in reversed(range(len(epochs))):
        epochs[i] = min(epochs[i], (epochs[i + 1] if i + 1 < len(epochs) else end) - 1)
    return epochs
