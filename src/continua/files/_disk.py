"""Files that are whole or not there, and the one reader of JSON."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from continua._errors import FileError

#: bounds of a JSON file: its bytes, how deep it nests, the digits of an integer
MOST_BYTES, MOST_LEVELS, MOST_DIGITS = 2**24, 64, 19
CHECKSUMS = "SHA256SUMS"
#: all but the brackets outside of strings; no way back, so that no text takes long
_BETWEEN = re.compile(r'"(?:[^"\\]++|\\.)*+"?|[^][{}"]++', re.DOTALL)
_PAIR = re.compile(r"\[\]|\{\}")


def write_files(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write all files under temporary names, then rename them; others wait for all of it."""
    temporary: list[tuple[str, Path]] = []
    try:
        for name, content in files.items():
            handle, path = tempfile.mkstemp(dir=folder, prefix=f".{name}-")
            temporary.append((path, folder / name))
            with os.fdopen(handle, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.chmod(path, 0o644)
        with _alone(folder):
            for path, place in temporary:
                os.replace(path, place)
            sync_folder(folder)
    finally:
        for path, _ in temporary:
            Path(path).unlink(missing_ok=True)


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Hold a lock on a folder, where the system has such locks."""
    try:
        import fcntl
    except ImportError:
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder last: a rename is in the folder, not in the file."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except PermissionError:  # Windows opens no folders, and needs none
        return
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # a file system without it
            raise
    finally:
        os.close(handle)


def write_whole(path: Path, content: bytes) -> None:
    """Write a file beside its place, then move it there: it is never half there."""
    try:
        write_files(path.parent, {path.name: content})
    except OSError as error:
        raise FileError(f"cannot write {path}: {error.strerror or error}") from error


def as_json(value: Any) -> bytes:
    """A value as JSON, for people to read."""
    return (json.dumps(value, indent=1) + "\n").encode()


def write_json(path: Path, value: Any) -> None:
    """Write a value as JSON."""
    write_whole(path, as_json(value))


def read_json(path: Path) -> dict[str, Any]:
    """The object that a JSON file holds."""
    return parse_json(read_bytes(path, MOST_BYTES), str(path))


def read_bytes(path: Path, most: int | None = None) -> bytes:
    """All bytes of a file, if they are not too many."""
    try:
        if path.exists() and not path.is_file():
            raise FileError(f"{path} cannot be read: it is no regular file")
        with path.open("rb") as file:
            content = file.read(-1 if most is None else most + 1)
    except FileNotFoundError:
        raise FileError(f"{path} does not exist") from None
    except (OSError, ValueError) as error:
        raise FileError(f"{path} cannot be read: {error}") from error
    if most is not None and len(content) > most:
        raise FileError(f"{path} cannot be read: it has more than {most:,} bytes")
    return content


def parse_json(content: bytes, where: str) -> dict[str, Any]:
    """The object that a text holds; errors say where it is from."""
    try:
        text = content.decode("utf-8")
        brackets = _BETWEEN.sub("", text)
        for _ in range(MOST_LEVELS):
            brackets = _PAIR.sub("", brackets)
        # What is left of a text of fewer levels is unbalanced, and json says where.
        if _PAIR.search(brackets) or len(brackets.strip("]}")) > MOST_LEVELS:
            raise ValueError(f"it nests more than {MOST_LEVELS} levels")
        found = json.loads(text, parse_int=_integer)
    except (ValueError, RecursionError) as error:
        raise FileError(f"{where} cannot be read: {error}") from error
    if not isinstance(found, dict):
        raise FileError(f"{where} holds no JSON object but {type(found).__name__}")
    return found


def _integer(digits: str) -> int:
    if len(digits.lstrip("-")) > MOST_DIGITS:
        raise ValueError(f"the integer {digits[:MOST_DIGITS]}... is too large")
    return int(digits)


def entry(found: Mapping[str, Any], name: str, kind: Any, where: object) -> Any:
    """One entry of an object, if it is there and of the right type.

    Args:
        found: the object.
        name: of the entry.
        kind: its type or types.
        where: for the error.
    """
    if name not in found:
        raise FileError(f"{where} lacks the entry {name!r}")
    value = found[name]
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is int):
        raise FileError(f"{where} has {name}={value!r:.60}, which is not of the right type")
    return value


# -- checksums of a folder ---------------------------------------------------------------------


def checksums(files: Mapping[str, bytes]) -> bytes:
    """The content of `SHA256SUMS`, as `sha256sum -c` reads it."""
    lines = [f"{sha256(content)}  {name}\n" for name, content in sorted(files.items())]
    return "".join(lines).encode()


def check_sums(folder: Path, names: Sequence[str]) -> dict[str, bytes]:
    """What these files hold, each as `SHA256SUMS` says."""
    path = folder / CHECKSUMS
    lines = read_bytes(path, MOST_BYTES).decode("utf-8", "replace").splitlines()
    digests = {name: digest for digest, _, name in (line.partition("  ") for line in lines)}
    contents = {name: read_bytes(folder / name) for name in names}
    for name, content in contents.items():
        check_sum(folder / name, content, digests.get(name), CHECKSUMS)
    return contents


def check_sum(path: Path, content: bytes, digest: object, where: str) -> None:
    """Raise an error unless the content has this checksum."""
    if sha256(content) != digest:
        raise FileError(f"{path} does not have the checksum in {where}: it was changed or damaged")


def sha256(content: bytes) -> str:
    """The checksum of a content."""
    return hashlib.sha256(content).hexdigest()
