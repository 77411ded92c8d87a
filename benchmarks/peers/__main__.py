"""The command: `make bench`, or `python -m peers` with this folder's parent on the path."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro

from continua import ContinuaError
from continua.train import make_folder

from ._before import run_before
from ._report import as_text, write_report
from ._suite import BenchOptions, run_bench

DONE, FAILED, MISTAKE = 0, 1, 2


@dataclass(frozen=True)
class Options(BenchOptions):
    """Measure continua beside other libraries, each in an environment of its own."""

    before: str | None = None
    """Measure the current sources beside those of this commit instead, without other libraries."""

    json: bool = False
    """Print one JSON object on stdout, and nothing else there."""


def run(arguments: Sequence[str] | None = None) -> int:
    """The exit code: 0, 1 if our own side fails on a row, 2 for a user's mistake."""
    config = (tyro.conf.FlagCreatePairsOff,)
    options = tyro.cli(Options, prog="peers", args=arguments, config=config)
    try:
        return _before(options, options.before) if options.before else _beside_peers(options)
    except (ContinuaError, OSError) as error:
        print(f"peers: {error}", file=sys.stderr)
        return MISTAKE


def _beside_peers(options: Options) -> int:
    folder = options.run_dir or Path("runs/bench")
    make_folder(folder)  # before minutes of measuring
    found = run_bench(options, _tell)
    written = write_report(found, folder)
    if options.json:
        print(json.dumps(found.as_dict()))
    else:
        print(as_text(found))
        print("Written: " + ", ".join(map(str, written)))
    return FAILED if found.failed else DONE


def _before(options: Options, revision: str) -> int:
    found = run_before(revision, options, _tell)
    print(json.dumps(found.as_dict()) if options.json else found)
    return FAILED if found.failed else DONE


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(run())
