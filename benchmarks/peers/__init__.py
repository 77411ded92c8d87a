"""The same problems, solved by us and by the libraries that one would take instead."""

from ._measure import Row
from ._report import as_text, write_report
from ._suite import Bench, BenchOptions, run_bench

__all__ = ["Bench", "BenchOptions", "Row", "as_text", "run_bench", "write_report"]
