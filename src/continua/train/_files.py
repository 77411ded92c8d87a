"""Files that are whole or not there."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from continua._errors import FileError
from continua.files import write_files


def write_whole(path: Path, content: bytes) -> None:
    """Write a file beside its place, then move it there: it is never half there."""
    try:
        write_files(path.parent, {path.name: content})
    except OSError as error:
        raise FileError(f"cannot write {path}: {error.strerror or error}") from error


def write_json(path: Path, value: Any) -> None:
    """A value as JSON, for people to read."""
    write_whole(path, (json.dumps(value, indent=1) + "\n").encode())


def read_json(path: Path) -> Any:
    """What a JSON file holds."""
    try:
        return json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise FileError(f"{path} does not exist") from None
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise FileError(f"{path} cannot be read: {error}") from error


@contextmanager
def held_alone(path: Path) -> Iterator[None]:
    """Refuse to go on while another process does the same with this file.

    The system gives the file free when a process ends, however it ends. Where it knows no such
    locks, nothing is refused.
    """
    try:
        import fcntl
    except ImportError:
        yield
        return
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise FileError(
                f"{path.parent} is in the hands of another process; wait until that has ended"
            ) from None
        except OSError:  # a file system without locks
            pass
        yield


def make_folder(folder: Path) -> None:
    """Make a folder, and make sure that it can be written to."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise FileError(
            f"cannot write to the folder {folder}: {error.strerror or error}; choose another"
        ) from error
