"""Models as files: saved, loaded and exported."""

from ._disk import write_files
from ._export import Exported, export
from ._files import build, load, save

__all__ = ["Exported", "build", "export", "load", "save", "write_files"]
