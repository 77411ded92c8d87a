"""What `load` knows about one dataset."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from ._dataset import Dataset
from ._files import Remote

Read = Callable[[Mapping[str, Path], int, float, Mapping[str, Any]], Dataset]


@dataclass(frozen=True)
class Source:
    """One dataset that `load` knows.

    Attributes:
        name: the name that `load` takes.
        what: a short description.
        sizes: items in train, validation and test with the default options.
        licence: the licence that it is published under.
        kind: whether it comes with scikit-learn, is generated, is read from files, or from a
            folder of the user's own.
        read: makes the dataset from files, seed, validation share and options.
        validation: the share of the training part that is held out, or None if the official
            layout has a validation part.
        options: the options with their default values.
        files: the files of the official layout.
        archive: the archive that holds the files, if they are not published one by one.
        folders: subfolders in which the files are looked for; downloads go to the first.
        scan: finds the files under a folder if their names are not known in advance. Such a
            dataset is too large to be downloaded automatically.
    """

    name: str
    what: str
    sizes: tuple[int, int, int]
    licence: str
    kind: Literal["embedded", "generated", "files", "folder"]
    read: Read = field(repr=False)
    validation: float | None
    options: Mapping[str, Any] = field(default_factory=dict)
    files: tuple[Remote, ...] = field(default=(), repr=False)
    archive: Remote | None = field(default=None, repr=False)
    folders: tuple[str, ...] = ()
    scan: Callable[[Path], dict[str, Path]] | None = field(default=None, repr=False)

    @property
    def download_bytes(self) -> int:
        """The size of a download."""
        return self.archive.bytes if self.archive else sum(file.bytes for file in self.files)
