"""Models as files: saved, loaded and exported; and files written whole or not at all."""

from ._disk import (
    CHECKSUMS,
    as_json,
    check_sum,
    checksums,
    entry,
    parse_json,
    read_bytes,
    read_checked,
    read_json,
    write_files,
    write_json,
    write_whole,
)  # fmt: skip
from ._export import Exported, export
from ._factory import allow
from ._hub import from_pretrained, push_to_hub
from ._load import load, load_contents
from ._save import build, model_files, save

__all__ = [
    "build", "save", "model_files", "load", "load_contents", "push_to_hub", "from_pretrained",
    "allow", "export", "Exported",
    "read_json", "parse_json", "entry", "read_bytes", "as_json", "write_json", "write_whole",
    "write_files", "checksums", "read_checked", "check_sum", "CHECKSUMS",
]  # fmt: skip
