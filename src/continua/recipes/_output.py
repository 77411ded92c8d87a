"""The folder that a recipe writes to."""

from __future__ import annotations

import csv
import io
import tempfile
from collections.abc import Iterable
from pathlib import Path

import continua as ct
from continua.files import read_json, write_whole
from continua.plot import Figure

METRICS = "metrics.json"


def check_folder(folder: Path, recipe: str, own: Iterable[str], force: bool = True) -> None:
    """Make the folder, and make sure that nothing but an older run of this recipe is replaced.

    Args:
        folder: where the recipe will write.
        recipe: its name, which stands in its metrics.
        own: the files and folders that it will write there.
        force: whether to replace an older run.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ct.FileError(
            f"cannot write to the run folder {folder}: {error.strerror or error}; "
            "choose another with --run-dir"
        ) from error
    taken = [name for name in own if (folder / name).exists()]
    if taken and not _is_run(folder, recipe):
        raise ct.FileError(
            f"the run folder {folder} has {taken[0]!r}, which no run of the {recipe} wrote; "
            "choose another with --run-dir"
        )
    if taken and not force:
        raise ct.FileError(
            f"{folder} holds a run of the {recipe}; --force overwrites it, --run-dir writes "
            "elsewhere"
        )


def _is_run(folder: Path, recipe: str) -> bool:
    try:
        return read_json(folder / METRICS).get("recipe") == recipe
    except ct.FileError:
        return False


def csv_text(head: Iterable[object], rows: Iterable[Iterable[object]]) -> str:
    """A table as comma-separated values."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(head)
    writer.writerows(rows)
    return out.getvalue()


def write_figure(path: Path, figure: Figure) -> None:
    """A figure as PNG."""
    buffer = io.BytesIO()
    # Without matplotlib's version in it, the same figure gives the same file.
    figure.savefig(buffer, format="png", metadata={"Software": None})
    write_whole(path, buffer.getvalue())
