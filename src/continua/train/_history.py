"""The measures of each epoch."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from continua._errors import FileError
from continua.files import entry, parse_json, read_bytes, write_whole

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
