"""Files that are whole or not there."""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from continua._errors import FileError

LOCK = "lock"
_held: set[tuple[int, Path]] = set()  # by threads of this process


@contextmanager
def held_alone(folder: Path) -> Iterator[None]:
    """Make a folder, and refuse to go on while another process holds it.

    A lock on the file `lock` in it, which nothing ever replaces. The system gives the lock free
    when a process ends, however it ends. Where it knows no such locks, nothing is refused. Of the
    processes of one training the first takes the lock. A thread that holds a folder may hold it
    again inside.
    """
    new = not folder.exists()
    make_folder(folder)
    mine = (threading.get_ident(), folder.resolve())
    if int(os.environ.get("RANK", "0")) or mine in _held:
        yield
        return
    with (folder / LOCK).open("ab") as file:
        _lock(file, folder)
        _held.add(mine)
        try:
            yield
        finally:
            _held.discard(mine)
            _leave_nothing(folder, new)


def _lock(file: IO[bytes], folder: Path) -> None:
    try:
        import fcntl
    except ImportError:
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        free = False
    except OSError:  # a file system without locks
        return
    else:
        # Not if the process that held it has just removed the folder that it could not use.
        path = folder / LOCK
        free = path.exists() and os.path.samestat(os.fstat(file.fileno()), path.stat())
    if not free:
        raise FileError(f"another process trains in {folder}; wait until that has ended")


def _leave_nothing(folder: Path, new: bool) -> None:
    """Where nothing was begun, remove the lock, while it is still held, and the folder if new."""
    with suppress(OSError):
        if [path.name for path in folder.iterdir()] == [LOCK]:
            (folder / LOCK).unlink()
            if new:
                folder.rmdir()


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
