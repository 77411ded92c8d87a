"""Sets by name, and the list of them."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from continua._errors import ArgumentError, FileError

from ._dataset import Dataset
from ._download import Progress, fetch, unpack
from ._files import VARIABLE, default_folder, locate
from ._source import Source
from ._sources import DATASETS
from ._split import checked_seed, checked_share


@dataclass(frozen=True)
class Entry:
    """One line of the catalogue.

    Attributes:
        name: to load it by.
        what: it is, in a few words.
        sizes: items in train, validation and test.
        download_bytes: what a download costs; 0 if nothing is downloaded.
        licence: under which it is published.
        where: the folder that holds all its files, or "embedded", "generated", "not here", or
            "a folder of yours".
    """

    name: str
    what: str
    sizes: tuple[int, int, int]
    download_bytes: int
    licence: str
    where: str


def load(
    name: str,
    *,
    folder: str | Path | None = None,
    seed: int = 0,
    validation: float | None = None,
    download: bool = True,
    progress: Progress | None = None,
    **options: Any,
) -> Dataset:
    """A set by its name, in three parts that share nothing.

    Files are looked for in the folder given, else in the one that the environment variable
    CONTINUA_DATA names, else in the user's cache; in the latter two, what is not there is
    downloaded and checked by its hash. A folder that is given is only read.

    - **Images** come as uint8, and `prepared` normalises them. The validation part is cut from
      the official training part, with every class in proportion.
    - **Treebanks** come as token ids and, as targets, the ids of the language's own tags (XPOS).
      Each sentence starts with a root token and is cut or padded to `max_length`. The vocabulary
      and the tags are those of the training part: another word has the id 1, and so has another
      tag, which no model learns to predict and which therefore counts as wrong. Targets are 0
      for the root and the padding, where nothing is to be predicted. The validation part is the
      official one.
    - **Points** are generated from the seed.
    - **Clips** come as a `VideoDataset`, whose `clips` gives the frames. Moving digits are drawn
      when they are asked for, from digits that no two parts share, and the test part is the same
      for every seed; BAIR's records are read when they are asked for; `frames` reads a folder of
      your own.

    Args:
        name: one of `DATASETS`.
        folder: that holds the files, or holds the folder that holds them; for `frames` the
            folder of the clips, or a file of arrays.
        seed: of the cut of the validation part, and of what is generated.
        validation: the share of the training part to cut out for validation; 0 for none.
        download: whether to download what is not there.
        progress: called with a file's name, the bytes so far and the bytes in all.
        options: `n` and `noise` of points; `max_length` and `max_forms` of treebanks; `n`,
            `test`, `frames`, `size`, `digits`, `digit_size`, `speed` and `bounce` of moving
            digits; `frames` and `camera` of BAIR; `frames`, `size`, `array` and `held_out` of
            `frames`; `any_size` of everything else that is read from files, to accept other
            counts than the official ones.

    Example:
        >>> moons = load("moons", n=400, noise=0.05)
        >>> len(moons.train), len(moons.validation), len(moons.test)
        (240, 60, 100)
    """
    source = _source(name)
    checked_seed(seed)
    for option in options:
        if option not in source.options:
            known = ", ".join(source.options) or "none"
            raise ArgumentError(f"{name} has no option {option!r}; it has: {known}")
    if validation is None:
        share = source.validation or 0.0
    elif source.validation is None:
        raise ArgumentError(
            f"{name} has a validation part of its own, so validation={validation!r} cannot be "
            "asked for; leave it out"
        )
    else:
        share = checked_share(validation)
    merged = {**source.options, **options}
    if source.kind == "folder":
        return source.read({"folder": _own(source, folder)}, seed, share, merged)
    if source.kind != "files":
        return source.read({}, seed, share, merged)
    if folder is not None:
        return source.read(_in_folder(source, Path(folder)), seed, share, merged)
    files = _in_default_folder(source, download, progress)
    try:
        return source.read(files, seed, share, merged)
    except FileError as error:
        if not download:
            raise
        raise FileError(f"{error} (delete the file to have it downloaded again)") from None


def catalogue(folder: str | Path | None = None) -> list[Entry]:
    """All sets: what they are, what they cost and where they lie.

    Args:
        folder: where to look; None for where `load` looks.

    Example:
        >>> {entry.name: entry.where for entry in catalogue()}["moons"]
        'generated'
    """
    root = default_folder() if folder is None else Path(folder).expanduser()
    return [
        Entry(
            name=source.name,
            what=source.what,
            sizes=source.sizes,
            download_bytes=source.download_bytes,
            licence=source.licence,
            where=_where(source, root),
        )
        for source in DATASETS.values()
    ]


def _source(name: str) -> Source:
    if name in DATASETS:
        return DATASETS[name]
    near = difflib.get_close_matches(str(name).lower().replace("_", "-"), DATASETS, 1, 0.5)
    advice = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(DATASETS)}"
    raise ArgumentError(f"there is no set {name!r}; {advice}")


def _own(source: Source, folder: str | Path | None) -> Path:
    if folder is None:
        raise ArgumentError(f"{source.name} are your own: name their folder with `folder`")
    path = Path(folder).expanduser()
    if not path.exists():
        raise FileError(f"{path} does not exist; name the folder of your {source.name}")
    return path


def _located(source: Source, root: Path) -> dict[str, Path]:
    if source.scan is not None:
        return source.scan(root)
    names = [file.name for file in source.files]
    return locate(root, source.folders, names, compressed=source.archive is None)


def _where(source: Source, root: Path) -> str:
    if source.kind == "folder":
        return "a folder of yours"
    if source.kind != "files":
        return source.kind
    found = _located(source, root)
    if not found or len(found) < len(source.files):
        return "not here"
    return str(next(iter(found.values())).parent)


def _in_folder(source: Source, root: Path) -> dict[str, Path]:
    root = root.expanduser()
    if not root.is_dir():
        state = "is not a folder" if root.exists() else "does not exist"
        raise FileError(
            f"{root} {state}; name a folder that holds {source.folders[0]}/ or its files, or leave "
            f"`folder` out to download {source.name}"
        )
    found = _located(source, root)
    missing = [file.name for file in source.files if file.name not in found]
    if source.scan is not None and not found:
        raise _too_large(source, root)
    if not missing:
        return found
    here = next(iter(found.values())).parent if found else root
    size = f"{source.download_bytes / 1e6:,.0f} MB"
    advice = f"leave `folder` out to download {source.name} ({size})"
    if source.archive and (root / source.archive.name).is_file():
        advice = f"unpack {root / source.archive.name} there"
    raise FileError(f"{here} does not hold {', '.join(missing)} of {source.name}; {advice}")


def _too_large(source: Source, root: Path) -> FileError:
    assert source.archive is not None
    return FileError(
        f"{root} does not hold {source.folders[0]}/train and {source.folders[0]}/test of "
        f"{source.name}; its {source.archive.bytes / 1e9:,.0f} GB are not downloaded unasked: "
        f"get {source.archive.url}, unpack it and name the folder"
    )


def _in_default_folder(
    source: Source, download: bool, progress: Progress | None
) -> dict[str, Path]:
    root = default_folder()
    found = _located(source, root)
    missing = [file for file in source.files if file.name not in found]
    if source.scan is not None and not found:
        raise _too_large(source, root)
    if not missing:
        return found
    if not download:
        raise FileError(
            f"{root} does not hold {', '.join(file.name for file in missing)} of {source.name}; "
            f"allow the download, name a folder, or set {VARIABLE} to one"
        )
    # What is there in another folder of the layout stays in use: only the rest is downloaded.
    target = next(iter(found.values())).parent if found else root / source.folders[0]
    if source.archive is not None:
        archive = root / source.archive.name
        fetch(source.archive, archive, progress)
        unpack(archive, [file.name for file in source.files], target)
        archive.unlink()
    else:
        for file in missing:
            fetch(file, target / file.url.rpartition("/")[2], progress)
    return _located(source, root)
