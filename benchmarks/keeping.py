"""Memory that a process keeps when it frees it.

The C library of Linux gives large blocks back to the system and fetches fresh pages for the next
ones. In training and large batches that takes up to a third of the time, more in one of two equal
programs than in the other, by where their tensors happen to lie: no ratio means anything then.
"""

from __future__ import annotations

import os
import sys

#: for the environment of a process that shall keep its memory; others than glibc do not look
KEEP = {"MALLOC_TRIM_THRESHOLD_": str(2**31 - 1), "MALLOC_MMAP_THRESHOLD_": str(2**30)}


def keep_freed_memory() -> None:
    """Start this script again in such a process, unless it runs in one."""
    if not KEEP.items() <= os.environ.items():
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **KEEP})
