"""Models as files: saved, loaded and exported."""

from ._export import Exported, export
from ._files import build, load, save, write_files

__all__ = ["Exported", "build", "export", "load", "save", "write_files"]
