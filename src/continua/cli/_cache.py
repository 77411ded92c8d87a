"""Compiled steps on disk."""

from __future__ import annotations

import json

from continua.gradient import cache_folder, cached_files, clear_cache

from ._words import DONE, say


def cache(clear: bool, as_json: bool) -> int:
    """Tell of the cache, or clear it."""
    files = cached_files()
    size, deleted = sum(path.stat().st_size for path in files), clear_cache() if clear else 0
    if as_json:
        told = {"folder": str(cache_folder()), "files": len(files), "bytes": size}
        print(json.dumps({**told, "deleted": deleted}))
    else:
        say(f"{cache_folder()}: {len(files)} files, {size / 1e6:.1f} MB")
        if clear:
            say(f"deleted {deleted} files")
    return DONE
