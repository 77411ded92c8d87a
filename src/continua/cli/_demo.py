"""The demonstration, shown."""

from __future__ import annotations

import json as json_format
from typing import TYPE_CHECKING

from ._progress import progress
from ._words import DONE, clock, percent

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from continua.recipes import DemoOptions, DemoReport

#: below this many columns, basis and solver share one
NARROW = 84


def demo(options: DemoOptions, json: bool) -> int:
    """Run the demonstration and tell what came of it."""
    import rich  # noqa: F401 (to miss it now rather than after the training)

    from continua.recipes import run_demo

    with progress() as watch:
        report = run_demo(options, watch)
    if json:
        print(json_format.dumps(report.metrics))
    else:
        show_demo(report)
    return DONE


def show_demo(report: DemoReport) -> None:
    """The table, where everything is, and what to try next."""
    from rich.console import Console

    console = Console(highlight=False)
    source, half, folder = report.source, report.half, report.options.run_dir
    latency, options = report.metrics["latency"], report.metrics["options"]
    console.print(demo_table(report, console))
    console.print(
        f"Accuracy: on {report.held_out} held-out images, not trained on; "
        f"one image is {100 / report.held_out:.2f} points.\n"
        f"Latency: median of {latency['rounds']} forwards of {latency['batch']} images, all models "
        f"in turn, on {options['device']} with --threads {options['threads']}.\n"
        f"In brackets: relative to the first row."
    )
    console.print(
        f"\nHalf the basis functions, without retraining: {half.parameter_ratio:.0%} of the "
        f"parameters, {percent(source.accuracy)} -> {percent(half.accuracy)} accuracy."
    )
    console.print("\nOne elastic run for three sizes, beside a network trained for each alone:")
    console.print(family_table(report.metrics["family"]))
    console.print(f"\nTook {clock(report.seconds)}. Everything is in {folder}:")
    for name, what in CONTENTS.items():
        console.print(f"  {name:<14}{what}")
    console.print("\nTry next, in Python:", style="bold")
    # As it is, to be copied: no wrapping, no markup.
    for line in snippet(report):
        print(f"  {line}")
    console.print("\nOr another seed, size or device: continua demo --help", soft_wrap=True)


CONTENTS = {
    "report.html": "all of it on one page, to open in a browser",
    "accuracy.png": "accuracy over size",
    "weights.png": "weights over depth, before and after",
    "variance.png": "batch-norm variance over depth",
    "models/": "the models of the tables; models/elastic holds three sizes",
    "metrics.json": "every number",
}


def demo_table(report: DemoReport, console: Console) -> Table:
    """One row per model; in few columns, two lines per row."""
    from rich import box
    from rich.table import Table

    narrow = console.width < NARROW
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    table.add_column("basis\nsolver, steps" if narrow else "basis", no_wrap=True)
    if not narrow:
        table.add_column("solver, steps", no_wrap=True)
    batch = report.metrics["latency"]["batch"]
    for name in ("parameters", "accuracy", f"latency, ms\n({batch} images)"):
        table.add_column(name, justify="right", no_wrap=True)
    between = "\n" if narrow else "  "
    for row in report.rows:
        solver = f"{row.solver}, {row.steps}"
        first = [f"{row.basis}\n{solver}"] if narrow else [row.basis, solver]
        table.add_row(
            *first,
            f"{row.parameters:,}{between}({row.parameter_ratio:.2f})",
            f"{percent(row.accuracy)}{between}({row.accuracy_change:+.2f})",
            f"{row.milliseconds:.1f}{between}({row.latency_ratio:.2f})",
            style="bold" if row is report.source else None,
        )
    return table


def family_table(family: list[dict[str, float]]) -> Table:
    """One row per size of the elastic run."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    for name in ("K, steps", "parameters", "one elastic run", "trained alone"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in family:
        accuracies = (percent(row[name]) for name in ("elastic", "alone"))
        table.add_row(f"{row['size']}", f"{row['parameters']:,}", *accuracies)
    return table


def snippet(report: DemoReport) -> list[str]:
    """How to use one of the models that the run left behind."""
    path = (report.options.run_dir / "models" / report.half.name).as_posix()
    return [
        "import continua as ct",
        "from continua.data import digits",
        f"model = ct.load({path!r})",
        f"d = digits(seed={report.options.seed})",
        "right = model(d.test_images).argmax(1) == d.test_labels",
        "print(right.float().mean())",
    ]
