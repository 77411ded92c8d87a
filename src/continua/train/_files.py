"""The folder of a run, which one process at a time writes to."""

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
_held: set[tuple[int, Path]] = set()  # threads of this process, and the folders that they hold


@contextmanager
def held_alone(folder: Path) -> Iterator[None]:
    """Make a folder, and lock it; an error while another process holds the lock.

    The lock is on the file `lock` in the folder. The system releases it when a process ends,
    however it ends. On a system without such locks nothing is refused. Of the processes of one
    training the first takes the lock. A thread may lock a folder that it holds again.
    """
    is_new = not folder.exists()
    make_folder(folder)
    key = (threading.get_ident(), folder.resolve())
    if int(os.environ.get("RANK", "0")) or key in _held:
        yield
        return
    with (folder / LOCK).open("ab") as file:
        _lock(file, folder)
        _held.add(key)
        try:
            yield
        finally:
            _held.discard(key)
            # If nothing was written, leave nothing: the lock goes while it is still held.
            with suppress(OSError):
                if [path.name for path in folder.iterdir()] == [LOCK]:
                    (folder / LOCK).unlink()
                    if is_new:
                        folder.rmdir()


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
        # The process that held the lock may have removed the file.
        path = folder / LOCK
        free = path.exists() and os.path.samestat(os.fstat(file.fileno()), path.stat())
    if not free:
        raise FileError(f"another process trains in {folder}; wait until that has ended")


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
