"""Downloads: checked by their hash, whole or not at all."""

from __future__ import annotations

import gzip
import os
import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from continua._errors import FileError, MissingPackageError

from ._files import VARIABLE, Remote, most_unpacked

Progress = Callable[[str, int, int], None]


def fetch(remote: Remote, target: Path, progress: Progress | None = None) -> None:
    """Download one file to a path, which exists afterwards only if the hash is right.

    Args:
        remote: what to download.
        target: where to put it.
        progress: called with the file's name, the bytes so far and the bytes in all.
    """
    try:
        import pooch
    except ImportError as error:
        raise MissingPackageError(
            "downloads need pooch, which is not installed",
            otherwise="name a folder that has the files",
        ) from error
    bar = _Bar(target.name, remote.bytes, progress) if progress else False
    instead = f"to do without, put the files in a folder and name it, or set {VARIABLE} to it"
    try:
        with _quiet(pooch.get_logger()):
            pooch.retrieve(
                remote.url,
                known_hash=remote.hash,
                fname=target.name,
                path=target.parent,
                downloader=pooch.HTTPDownloader(progressbar=bar, chunk_size=2**16),
            )
    # What `requests` raises is an OSError; pooch raises ValueError for a hash.
    except OSError as error:
        response = getattr(error, "response", None)
        if response is not None:
            response.close()  # pooch leaves the connection open
        raise FileError(
            f"{remote.url} could not be downloaded to {target.parent} ({_reason(error)}); {instead}"
        ) from error
    except ValueError as error:
        raise FileError(
            f"what {remote.url} sends is not the official file, by its hash ({remote.hash}), "
            f"so nothing was kept; try again later, or {instead}"
        ) from error


def unpack(archive: Path, names: Sequence[str], folder: Path) -> None:
    """Take the named files out of a tar archive, whatever folder they lie in there.

    Only files that are asked for are written, under names of our own, so an archive cannot write
    anywhere else. Links are refused, and so is an archive that unpacks to far more than its size.

    Args:
        archive: the `.tar.gz`.
        names: of the files.
        folder: to put them in, once all of them are there.
    """
    with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
        try:
            with _Short(archive) as file, tarfile.open(fileobj=file, mode="r|") as tar:
                for member in tar:
                    name = member.name.rpartition("/")[2]
                    if name not in names or member.isdir():
                        continue
                    # A sparse file is far larger than what is stored of it.
                    plain = member.isreg() and not member.issparse()
                    source = tar.extractfile(member) if plain else None
                    if source is None:
                        raise FileError(
                            f"{archive} cannot be unpacked: {member.name} is a link or sparse"
                        )
                    with source, open(Path(temporary, name), "wb") as target:
                        shutil.copyfileobj(source, target, 2**20)
                while file.read(2**20):  # the checksum is at the very end
                    pass
        except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
            raise FileError(f"{archive} cannot be unpacked: {error}") from error
        missing = [name for name in names if not Path(temporary, name).is_file()]
        if missing:
            raise FileError(f"{archive} does not hold {', '.join(missing)}")
        folder.mkdir(parents=True, exist_ok=True)
        for name in names:
            os.replace(Path(temporary, name), folder / name)


class _Short(gzip.GzipFile):
    """A compressed archive, up to the bytes that it may hold."""

    def __init__(self, archive: Path):
        super().__init__(archive)
        self.most = self.left = most_unpacked(archive)

    def read(self, size: int | None = -1) -> bytes:
        found = super().read(size)
        self.left -= len(found)
        if self.left < 0:
            raise FileError(
                f"{self.name} cannot be unpacked: it holds more than {self.most:,} bytes"
            )
        return found


def _reason(error: BaseException) -> str:
    """What the operating system said, which `requests` wraps three times."""
    inner = error
    while inner.__cause__ or inner.__context__:
        inner = inner.__cause__ or inner.__context__ or inner
    said = inner.strerror if isinstance(inner, OSError) else None
    return " ".join(str(said or error).split())


class _Bar:
    """What pooch thinks is a progress bar."""

    def __init__(self, name: str, size: int, progress: Progress):
        self.name, self.size, self.progress = name, size, progress
        self.total = 0  # pooch sets it to what the server says
        self.done = 0

    def update(self, count: int) -> None:
        # pooch counts whole chunks, and a server may compress on the way: never beyond the end.
        total = self.size or self.total
        self.done = min(self.done + count, total) if total else self.done + count
        self.progress(self.name, self.done, total)

    def reset(self) -> None:
        self.done = 0

    def close(self) -> None:
        pass


@contextmanager
def _quiet(logger: object) -> Iterator[None]:
    """Nothing prints from the library: pooch's own logger writes to the terminal."""
    import logging

    assert isinstance(logger, logging.Logger)
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(level)
