"""The commands on runs and models."""

from __future__ import annotations

import json as json_format
import shutil
import textwrap
import webbrowser
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ._progress import progress
from ._words import DONE, percent, say, tabulate

#: below this many columns, the table of a sweep has three lines per row
NARROW = 80

if TYPE_CHECKING:
    from continua.measure import Comparison
    from continua.recipes import (
        DataOptions,
        EvaluateOptions,
        ExportOptions,
        GradcheckOptions,
        HealOptions,
        MemoryOptions,
        NewOptions,
        Recipe,
        ReproduceOptions,
        Study,
        SweepOptions,
        TrainOptions,
    )


def train(options: TrainOptions, json: bool) -> int:
    """Train, and tell what came of it."""
    from continua.recipes import RECIPES, run_train

    if options.recipe == "list":
        return listing(RECIPES, json)
    if options.show:
        return show(options, json)
    with progress() as watch:
        run, result = run_train(options, RECIPES, watch)
    if json:
        print(json_format.dumps(result | {"folder": str(run.folder)}))
        return DONE
    from continua.recipes import describe_result

    say(describe_result(result))
    verb = "sweep" if "accuracy" in result["test"] else "evaluate"
    again = f" --recipe {options.recipe}" if ".py" in options.recipe else ""
    say(f"Everything is in {run.folder}. Next: continua {verb} {run.folder}{again}")
    return DONE


def show(options: TrainOptions, json: bool) -> int:
    """Every setting of a recipe, with its value and meaning."""
    from continua.recipes import RECIPES, settings_of, the_run

    found = settings_of(the_run(options, RECIPES).setup)
    if json:
        print(json_format.dumps({s.name: {"value": s.value, "meaning": s.meaning} for s in found}))
        return DONE
    width = shutil.get_terminal_size().columns
    for setting in found:
        print(f"{setting.name}={_written(setting.value)}")
        indent = " " * 4
        for line in textwrap.wrap(setting.meaning, max(min(width, 100) - 5, 20)):
            print(indent + line)
    return DONE


def _written(value: object) -> str:
    """A value as `--set` takes it."""
    if value is None or isinstance(value, bool):
        return str(value).lower()
    return str(value)


def new(options: NewOptions, json: bool) -> int:
    """Write a file to begin with."""
    from continua.recipes import run_new

    file = run_new(options)
    if json:
        print(json_format.dumps({"file": str(file)}))
        return DONE
    say(f"Written to {file}. It runs as it is; change the model and the data in it.")
    print(f"Next: continua train {file}:recipe")
    return DONE


def listing(known: Mapping[str, Recipe | Study], json: bool) -> int:
    """Every recipe, or every study, and how long each scale takes."""
    if json:
        rows = {
            k: {"about": v.about, "takes": {str(s): t for s, t in v.takes.items()}}
            for k, v in known.items()
        }
        print(json_format.dumps(rows))
        return DONE
    for name, one in known.items():
        say(f"{name}: {one.about}")
        for scale, takes in one.takes.items():
            say(f"  --scale {scale:<7} {takes}")
    return DONE


def evaluate(options: EvaluateOptions, json: bool) -> int:
    """Measure a model."""
    from continua.recipes import run_evaluate

    with progress() as watch:
        found = run_evaluate(options, watch)
    if json:
        print(json_format.dumps(found))
        return DONE
    if "accuracy" not in found:
        known = ("recipe", "part", "samples", "parameters")
        measures = [f"{name} {value:.4g}" for name, value in found.items() if name not in known]
        say(
            f"{found['recipe']}: {', '.join(measures)} on the {found['part']} part, "
            f"{found['samples']:,} samples; {found['parameters']:,} parameters"
        )
        return DONE
    say(
        f"{found['recipe']}: {percent(found['accuracy'])} of the {found['part']} part, "
        f"{found['samples']:,} samples; loss {found['loss']:.4f}; "
        f"{found['parameters']:,} parameters"
    )
    return DONE


def changed(comparison: Comparison, out: Path, json: bool, recipe: str | None = None) -> int:
    """Tell how a model differs from the one it was made of."""
    if json:
        before, after = comparison.source.parameters, comparison.target.parameters
        print(json_format.dumps({"out": str(out), "parameters": [before, after]}))
        return DONE
    from continua.recipes import knows_its_run

    tabulate(str(comparison))
    again = "" if recipe is None else f" --recipe {recipe}"
    next_one = f" Next: continua evaluate {out}{again}" if knows_its_run(out) else ""
    say(f"Written to {out}.{next_one}")
    return DONE


def heal(options: HealOptions, json: bool, recipe: str | None = None) -> int:
    """Train a smaller model by the larger one."""
    from continua.recipes import run_heal

    with progress() as watch:
        comparison = run_heal(options, watch)
    return changed(comparison, options.out, json, recipe)


def sweep(options: SweepOptions, json: bool) -> int:
    """Measure many sizes."""
    from continua.recipes import run_sweep_command

    with progress() as watch:
        found = run_sweep_command(options, watch)
    if json:
        rows = [vars(trial) for trial in (found.source, *found.trials)]
        print(json_format.dumps({"samples": found.samples, "part": found.part, "trials": rows}))
        return DONE
    from rich import box
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    narrow = console.width < NARROW
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))

    def joined(cells: Sequence[str]) -> list[str]:
        return ["\n".join(cells)] if narrow else list(cells)

    for name in joined(("basis", "solver", "by")):
        table.add_column(name, no_wrap=True)
    for name in joined(("parameters", "accuracy", "ms")):
        table.add_column(name, justify="right", no_wrap=True)
    for trial in (found.source, *found.trials):
        time = "" if trial.milliseconds is None else f"{trial.milliseconds:.1f}"
        table.add_row(
            *joined(
                (f"{trial.basis}({trial.size})", f"{trial.scheme} x {trial.steps}", trial.method)
            ),
            *joined((f"{trial.parameters:,}", percent(trial.accuracy), time)),
            style="bold" if trial is found.source else None,
        )
    console.print(table)
    say(
        f"Accuracy on {found.samples:,} samples of the {found.part} part; ms: median time of "
        f"{found.batch} samples."
    )
    for name, sentence in found.sentences.items():
        say(f"{name}: {sentence}")
    where = options.out or options.model / "sweep"
    say(f"Table, figures and report.html are in {where}: continua report {where} --open")
    return DONE


def report(folder: Path, show: bool, json: bool) -> int:
    """Write report.html, and open it."""
    from continua.recipes import write_report

    file = write_report(folder)
    if json:
        print(json_format.dumps({"file": str(file)}))
    else:
        say(f"Written to {file}")
    if show:
        webbrowser.open(file.resolve().as_uri())
    return DONE


def export(options: ExportOptions, json: bool, recipe: str | None) -> int:
    """Write a model by itself."""
    from continua.recipes import run_export

    out = run_export(options)
    if not isinstance(out, Path):
        print(
            json_format.dumps(vars(out) | {"file": str(out.file)}) if json else f"Written to {out}"
        )
    elif json:
        print(json_format.dumps({"out": str(out)}))
    else:
        opening = f"continua.recipes.open_recipe({recipe!r}); " if recipe else ""
        print(f"Written to {out}: {opening}continua.load({str(out)!r})")
    return DONE


def reproduce(options: ReproduceOptions, json: bool) -> int:
    """Run a study."""
    from continua.recipes import STUDIES, run_reproduce

    if options.study == "list":
        return listing(STUDIES, json)
    with progress() as watch:
        report = run_reproduce(options, STUDIES, watch)
    if json:
        print(json_format.dumps(report.facts))
    else:
        print(report.text)
        print(f"Everything is in {report.folder}")
    return DONE


def data(options: DataOptions, json: bool) -> int:
    """List data, or get some."""
    from continua.recipes import run_data

    with progress() as watch:
        entries = run_data(options, watch)
    if json:
        print(json_format.dumps([vars(entry) for entry in entries]))
        return DONE
    for entry in entries:
        sizes = " / ".join(f"{n:,}" for n in entry.sizes)
        cost = f"download {entry.download_bytes / 1e6:,.1f} MB" if entry.download_bytes else "free"
        say(f"{entry.name}: {entry.what}")
        parts = f"{sizes} train / validation / test; " if any(entry.sizes) else ""
        say(f"  {parts}{cost}; {entry.licence}")
        say(f"  {entry.where}")
    return DONE


# -- gradcheck ---------------------------------------------------------------------------------


def gradcheck(options: GradcheckOptions, json: bool) -> int:
    """Measure the gradients of a saved model and show a table per block."""
    from continua.recipes import run_gradcheck

    reports = run_gradcheck(options)
    if json:
        rows = {
            name: [
                {
                    key: repr(value) if key == "gradient" else value
                    for key, value in vars(row).items()
                }
                for row in report.rows
            ]
            for name, report in reports.items()
        }
        print(json_format.dumps(rows))
        return DONE
    for name, report in reports.items():
        print(f"block {name or '(the model)'}")
        tabulate(str(report))
        print()
    return DONE


def memory(options: MemoryOptions, json: bool) -> int:
    """Measure what training a saved model takes."""
    from continua.recipes import run_memory

    report = run_memory(options)
    if json:
        rows = [vars(row) | {"gradient": row.name} for row in report.rows]
        print(json_format.dumps(vars(report) | {"rows": rows}))
    else:
        tabulate(str(report))
    return DONE
