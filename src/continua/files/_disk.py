"""The files of a saved model: written completely or not at all, checked when read."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from torch import Tensor

from continua._errors import FileError

FORMAT = 1
WEIGHTS = "model.safetensors"
CONFIG = "config.json"


def write_files(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write all files under temporary names, then rename them."""
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
        for path, place in temporary:
            os.replace(path, place)
    finally:
        for path, _ in temporary:
            Path(path).unlink(missing_ok=True)


def read_config(path: Path) -> dict[str, Any]:
    """The content of `config.json`."""
    try:
        config = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise FileError(
            f"{path} does not exist; a saved model has {CONFIG} and {WEIGHTS}"
        ) from None
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise FileError(f"{path} cannot be read: {error}") from error
    version = config.get("format") if isinstance(config, dict) else None
    if not isinstance(version, int):
        raise FileError(f"{path} is not the config of a continua model: it has no format number")
    if version > FORMAT:
        raise FileError(
            f"{path} has format {version}, newer than {FORMAT}, the newest this continua reads; "
            "upgrade continua"
        )
    return config  # type: ignore[no-any-return]


def read_tensors(path: Path, config: Mapping[str, Any]) -> dict[str, Tensor]:
    """The tensors of `model.safetensors`, checked against the size and hash in the config."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise FileError(f"{path} does not exist, though {CONFIG} beside it does") from None
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error}") from error
    expected = config.get("weights")
    if not isinstance(expected, dict) or not isinstance(expected.get("bytes"), int):
        raise FileError(f"{path.parent / CONFIG} does not say what {WEIGHTS} holds: it was changed")
    if len(content) != expected.get("bytes"):
        raise FileError(
            f"{path} has {len(content):,} bytes where {CONFIG} says "
            f"{expected['bytes']:,}: it was cut or belongs to another model"
        )
    if hashlib.sha256(content).hexdigest() != expected.get("sha256"):
        raise FileError(f"{path} does not have the checksum in {CONFIG}: it was changed or damaged")
    try:
        return load_tensors(content)
    except SafetensorError as error:
        raise FileError(f"{path} is not a safetensors file: {error}") from error
