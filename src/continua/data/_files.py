"""Where files lie, and their bytes."""

from __future__ import annotations

import gzip
import io
import os
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from continua._errors import FileError, MissingPackageError

VARIABLE = "CONTINUA_DATA"
#: a compressed file may hold this many times its own bytes, and so many more
RATIO, FREE = 100, 2**24


@dataclass(frozen=True)
class Remote:
    """A file of an official layout and where it is published.

    Attributes:
        name: under which it lies in its folder.
        url: of the file, or of the archive that holds it.
        bytes: to be downloaded.
        hash: of what is downloaded, as pooch writes it; None where only the content is checked.
    """

    name: str
    url: str = ""
    bytes: int = 0
    hash: str | None = None


def default_folder() -> Path:
    """The folder that CONTINUA_DATA names, else the user's cache."""
    named = os.environ.get(VARIABLE)
    if named:
        return Path(named).expanduser()
    try:
        import pooch
    except ImportError as error:
        raise MissingPackageError(
            "downloads need pooch, which is not installed",
            otherwise=f"name a folder, or set {VARIABLE}",
        ) from error
    return Path(pooch.os_cache("continua"))


def locate(
    root: Path, folders: Sequence[str], names: Sequence[str], compressed: bool = True
) -> dict[str, Path]:
    """The files of the first of the folders that has the most of them.

    Args:
        root: the folder that holds those folders, or is one of them.
        folders: where to look, in this order, then in the root itself.
        names: of the files; IDX files may be written with a dot, as some archives have them.
        compressed: whether a file may also have `.gz` at the end of its name.
    """
    endings = ("", ".gz") if compressed else ("",)
    best: dict[str, Path] = {}
    for folder in (*folders, "."):
        found = {}
        for name in names:
            for spelling in (name, name.replace("-idx", ".idx")):
                for ending in endings:
                    path = root / folder / f"{spelling}{ending}"
                    if name not in found and path.is_file():
                        found[name] = path
        if len(found) > len(best):
            best = found
    return best


def most_unpacked(path: Path) -> int:
    """How many bytes a compressed file may hold."""
    return FREE + RATIO * path.stat().st_size


def content(path: Path) -> bytes:
    """All bytes of a file, decompressed if it is compressed, whatever its name says."""
    try:
        raw = path.read_bytes()
        if raw[:2] == b"\x1f\x8b":
            most = most_unpacked(path)
            with gzip.open(io.BytesIO(raw)) as file:
                raw = file.read(most + 1)
            if len(raw) > most:
                raise FileError(f"{path} is damaged: it unpacks to more than {most:,} bytes")
    except EOFError:
        raise FileError(f"{path} is truncated: its compressed stream has no end") from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise FileError(f"{path} is damaged: it cannot be decompressed ({error})") from None
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error.strerror or error}") from error
    if not raw:
        raise FileError(f"{path} is empty")
    return raw
