"""The comparison with other libraries."""

from __future__ import annotations

import json as json_format
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ._words import DONE, FAILED

if TYPE_CHECKING:
    from continua.bench import BenchOptions


def bench(options: BenchOptions, json: bool) -> int:
    """Measure, write the page and the chart, and show the table."""
    from continua.bench import as_text, run_bench, write_report
    from continua.train import make_folder

    def tell(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    folder = options.run_dir or Path("runs/bench")
    make_folder(folder)  # before minutes of measuring
    found = run_bench(options, tell)
    written = write_report(found, folder)
    if json:
        print(json_format.dumps(found.as_dict()))
    else:
        print(as_text(found))
        print("Written: " + ", ".join(map(str, written)))
    return FAILED if found.failed else DONE
