"""The treebanks of Universal Dependencies."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ._dataset import Dataset
from ._files import Remote
from ._source import Source
from ._treebank import PARTS, read_treebank

RELEASE = "r2.16"


def _treebank(
    name: str,
    repository: str,
    prefix: str,
    what: str,
    licence: str,
    counts: dict[str, tuple[int, int]],
    published: dict[str, tuple[int, str | None]],
) -> Source:
    base = f"https://raw.githubusercontent.com/UniversalDependencies/{repository}/{RELEASE}/"

    def read(
        files: Mapping[str, Path], seed: int, validation: float, options: Mapping[str, Any]
    ) -> Dataset:
        return read_treebank(
            name,
            {part: files[f"{prefix}-ud-{part}.conllu"] for part in PARTS},
            {} if options["any_size"] else counts,
            max_length=options["max_length"],
            max_forms=options["max_forms"],
        )

    return Source(
        name=name,
        what=what,
        sizes=(counts["train"][0], counts["dev"][0], counts["test"][0]),
        licence=licence,
        kind="files",
        read=read,
        validation=None,
        options={"any_size": False, "max_length": 102, "max_forms": 100_000},
        files=tuple(
            Remote(
                f"{prefix}-ud-{part}.conllu", f"{base}{prefix}-ud-{part}.conllu", *published[part]
            )
            for part in PARTS
        ),
        folders=(
            "ud",
            repository,
            f"ud/{repository}",
            f"ud-treebanks-v{RELEASE.removeprefix('r')}/{repository}",
            name,
        ),
    )


TREEBANKS = (
    _treebank(
        "ud-english-ewt",
        "UD_English-EWT",
        "en_ewt",
        "English web text, words and their tags",
        "CC BY-SA 4.0",
        {"train": (12_544, 204_577), "dev": (2_001, 25_147), "test": (2_077, 25_094)},
        {
            "train": (
                14_203_025,
                "sha256:3fb78e2b55482c8ee00caa653af436c88c9e5bc9a73ce26e4ae3ddc79d2b7e7b",
            ),
            "dev": (
                1_805_545,
                "sha256:531a54ff90d6ab12201c5a50c3e78e6ddac4de69abc4bce5d275d3cd29efe2b6",
            ),
            "test": (
                1_804_515,
                "sha256:e266e515a0a7547657ed3d90d9ba46487d6bd251f27ad4269d4e8a427c8555cd",
            ),
        },
    ),
    _treebank(
        "ud-english-gum",
        "UD_English-GUM",
        "en_gum",
        "English of twelve kinds and more, words and their tags",
        "CC BY-NC-SA 4.0",
        {"train": (10_224, 177_410), "dev": (1_575, 28_119), "test": (1_464, 28_397)},
        {
            # The hash of the training file is not known here: its sentences and words are counted.
            "train": (18_437_023, None),
            "dev": (
                2_914_819,
                "sha256:581997015a2d878ad49619032d265a9753e1b6b03d75ca18b04a00bb9ee8991d",
            ),
            "test": (
                2_917_494,
                "sha256:fe95c0e744f81cdf2a307ce522604ecc05cd359c7c6d1abaa3a46c85d024f34c",
            ),
        },
    ),
)
