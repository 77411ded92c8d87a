"""Models as files: saved, loaded and exported."""

from ._disk import (
    CHECKSUMS,
    as_json,
    check_sum,
    check_sums,
    checksums,
    entry,
    parse_json,
    read_bytes,
    read_json,
    sync_folder,
    write_files,
    write_json,
    write_whole,
)
from ._export import Exported, export
from ._factory import allow
from ._load import load
from ._save import build, save

__all__ = [
    "CHECKSUMS",
    "Exported",
    "allow",
    "as_json",
    "build",
    "check_sum",
    "check_sums",
    "checksums",
    "entry",
    "export",
    "load",
    "parse_json",
    "read_bytes",
    "read_json",
    "save",
    "sync_folder",
    "write_files",
    "write_json",
    "write_whole",
]
