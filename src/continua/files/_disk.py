"""Files that are written whole or not at all, and the one reader of JSON."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

from continua._errors import FileError

#: bounds of a JSON file: its bytes, how deep it nests, the digits of an integer
MOST_BYTES, MOST_LEVELS, MOST_DIGITS = 2**24, 64, 19
CHECKSUMS = "SHA256SUMS"
#: everything but the brackets outside of strings; possessive, so that no text takes long
_NO_BRACKETS = re.compile(r'"(?:[^"\\]++|\\.)*+"?|[^][{}"]++', re.DOTALL)


def write_files(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write files to a folder, each whole or not at all; the folder is made if it does not exist.

    All are written under temporary names, and then renamed while other writers wait.
    """
    temporary: dict[str, Path] = {}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            handle, path = tempfile.mkstemp(dir=folder, prefix=f".{name}-")
            temporary[name] = Path(path)
            with os.fdopen(handle, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.chmod(path, 0o644)
        with _locked(folder):
            for name, hidden in temporary.items():
                os.replace(hidden, folder / name)
    except OSError as error:
        place = folder / next(iter(files)) if len(files) == 1 else folder
        raise FileError(f"cannot write to {place}: {error.strerror or error}") from error
    finally:
        for hidden in temporary.values():
            hidden.unlink(missing_ok=True)


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Lock a folder while files in it are renamed, then sync it: their names are in the folder."""
    if sys.platform == "win32":  # which cannot open a folder, and need not sync it
        yield
        return
    import fcntl

    handle = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
        try:
            os.fsync(handle)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # a file system without sync
                raise
    finally:
        os.close(handle)


def write_whole(path: Path, content: bytes) -> None:
    """Write one file, whole or not at all."""
    write_files(path.parent, {path.name: content})


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
    """The object that a JSON text holds; errors say where the text is from."""
    try:
        text = content.decode("utf-8")
        # Before it is parsed: the parser calls itself for each level.
        brackets = _NO_BRACKETS.sub("", text)
        levels = accumulate(1 if bracket in "[{" else -1 for bracket in brackets)
        if max(levels, default=0) > MOST_LEVELS:
            raise ValueError(f"it nests more than {MOST_LEVELS} levels")
        found = json.loads(text, parse_int=_integer)
    except ValueError as error:
        raise FileError(f"{where} cannot be read: {error}") from error
    if not isinstance(found, dict):
        raise FileError(f"{where} holds no JSON object but {type(found).__name__}")
    return found


def _integer(digits: str) -> int:
    if len(digits.lstrip("-")) > MOST_DIGITS:
        raise ValueError(f"the integer {digits[:MOST_DIGITS]}... is too large")
    return int(digits)


def entry(config: Mapping[str, Any], name: str, kind: Any, where: object) -> Any:
    """One entry of a JSON object, if it exists and has this type; errors say where it is from."""
    if name not in config:
        raise FileError(f"{where} lacks the entry {name!r}")
    value = config[name]
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is int):
        raise FileError(f"{where} has {name}={value!r:.60}, which is not of the right type")
    return value


# -- checksums of a folder ---------------------------------------------------------------------


def checksums(files: Mapping[str, bytes]) -> bytes:
    """The content of `SHA256SUMS`, as `sha256sum -c` reads it."""
    lines = [f"{sha256(content)}  {name}\n" for name, content in sorted(files.items())]
    return "".join(lines).encode()


def read_checked(folder: Path, names: Sequence[str]) -> dict[str, bytes]:
    """The content of these files, each with the checksum in `SHA256SUMS`."""
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
    """The checksum of some bytes."""
    return hashlib.sha256(content).hexdigest()
