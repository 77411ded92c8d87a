"""Compiled programs on disk."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, fx

from ._products import PRODUCTS, inline_products

#: how much disk space compiled programs may take, in bytes; the oldest are deleted
LIMIT = 1 << 30
#: how long a file is safe, in seconds: another process may be about to read it
SAFE = 3600.0

_lock = threading.Lock()  # inductor's settings are those of the process


def cache_folder() -> Path:
    """Where compiled programs are kept: `CONTINUA_CACHE`, or the user's cache folder."""
    own = os.environ.get("CONTINUA_CACHE")
    if own:
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "continua"


def cached_files() -> list[Path]:
    """The files of compiled programs, the oldest first."""
    found = [path for path in (cache_folder() / "inductor").rglob("*") if path.is_file()]
    return sorted(found, key=_used)


def clear_cache(limit: int = 0, safe: float = 0.0) -> int:
    """Delete the oldest files until the rest takes at most `limit` bytes; how many were deleted.

    Args:
        limit: how many bytes may stay.
        safe: files that were used in the last so many seconds stay.
    """
    files, now, deleted = cached_files(), time.time(), 0
    total = sum(map(_size, files))
    for path in files:
        if total <= limit or now - _used(path) < safe:
            break
        total -= _size(path)
        path.unlink(missing_ok=True)
        deleted += 1
    return deleted


def _used(path: Path) -> float:
    try:
        found = path.stat()
    except FileNotFoundError:  # another process has deleted it
        return 0.0
    return max(found.st_atime, found.st_mtime)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


@contextmanager
def _inductor_folder() -> Iterator[None]:
    """Let inductor use our folder, unless it was given one."""
    from torch._inductor.runtime.cache_dir_utils import default_cache_dir

    name = "TORCHINDUCTOR_CACHE_DIR"
    before = os.environ.get(name)
    if before not in (None, default_cache_dir()):  # which torch puts there itself
        yield
        return
    os.environ[name] = str(cache_folder() / "inductor")
    try:
        yield
    finally:
        os.environ.pop(name)
        if before is not None:
            os.environ[name] = before


def compile_with_inductor(graph: fx.GraphModule) -> Callable[[list[Tensor]], Sequence[Tensor]]:
    """A graph as machine code, from disk if it is known there."""
    import torch._functorch.config as functorch
    import torch._inductor.config as inductor
    from torch._inductor.compile_fx import compile_fx_inner

    inline_products(graph)
    examples = [node.meta["val"] for node in graph.graph.nodes if node.op == "placeholder"]
    # Keep the strides of every output: the vjp of a step is compiled for those of the trace.
    end = graph.graph.output_node()
    end.meta["user_visible_output_idxs"] = list(range(len(end.args[0])))  # type: ignore[arg-type]
    # Sizes, strides and precisions are checked once per solve, not at every step.
    settings: dict[str, Any] = {
        "size_asserts": False,
        "layout_optimization": False,  # channels last inside costs more than it gains
        "fx_graph_cache": True,
        "epilogue_fusion": False,  # products write their results as they are
        "compile_threads": 1,  # no further processes, which would outlive a solve
    }
    with (
        _lock,
        _inductor_folder(),
        inductor.patch(settings),
        functorch.patch(bundled_autograd_cache=False),
        torch.compiler.config.patch(cache_key_tag=PRODUCTS),  # type: ignore[attr-defined]
    ):
        # Also what calls the kernels is C++: the calls take much of the time of a small step.
        compiled = compile_fx_inner(graph, examples, cpp_wrapper=True)
        clear_cache(LIMIT, SAFE)
    # The call itself, without what inductor does around it for autotuning.
    run: Callable[[list[Tensor]], Sequence[Tensor]]
    run = getattr(compiled, "current_callable", None) or compiled
    return run
