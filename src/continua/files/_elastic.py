"""Elastic models as files: all sizes in one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from torch import nn

from continua._errors import ArgumentError, ContinuaError, FileError
from continua.transform import Choice, Elastic

from ._disk import entry
from ._factory import decode, encode

MOST_SIZES = 64


def elastic_config(model: Elastic) -> dict[str, Any]:
    """What makes an elastic model of a plain one."""
    return {"sizes": encode(list(model.sizes), "Elastic")}


def elastic_from_config(model: nn.Module, config: Any, path: Path) -> Elastic:
    """The inverse of `elastic_config`."""
    try:
        sizes = decode(entry(config, "sizes", list, path))
        if len(sizes) > MOST_SIZES:
            raise ArgumentError(f"there are {len(sizes):,}, and a file has at most {MOST_SIZES}")
        return Elastic(model, sizes)
    except (KeyError, TypeError, AttributeError, ContinuaError) as error:
        raise FileError(f"{path} has sizes that cannot be: {error}") from error


def at_size(model: nn.Module, size: Choice, folder: str | os.PathLike[str]) -> nn.Module:
    """One size of an elastic model."""
    if not isinstance(model, Elastic):
        raise ArgumentError(
            f"{folder} holds a model of one size; continua.compress makes it smaller"
        )
    return model.at(size)
