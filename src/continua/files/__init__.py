"""Models as files: saved, loaded and exported; and files that are whole or not there."""

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
)  # fmt: skip
from ._export import Exported, export
from ._factory import allow
from ._hub import from_pretrained, push_to_hub
from ._load import load, load_read
from ._save import build, save

__all__ = [
    "build", "save", "load", "load_read", "push_to_hub", "from_pretrained", "allow", "export",
    "Exported",
    "read_json", "parse_json", "entry", "read_bytes", "as_json", "write_json", "write_whole",
    "write_files", "sync_folder", "checksums", "check_sums", "check_sum", "CHECKSUMS",
]  # fmt: skip
