"""The `continua` command.

A command is a dataclass: its fields are its options, its docstring is its help, and calling it
runs it and gives the exit code. To add one, add its class to `commands`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import io
import json as json_format
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from continua import ContinuaError, __version__

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console
    from rich.table import Table

    from continua.recipes import (
        DataOptions,
        DemoOptions,
        DemoReport,
        EvaluateOptions,
        ExportOptions,
        GradcheckOptions,
        Recipe,
        ReproduceOptions,
        Study,
        SweepOptions,
        TrainOptions,
    )
    from continua.train import Progress
    from continua.transform import Comparison

__all__ = ["main"]

DONE, MISTAKE, INTERRUPTED = 0, 2, 130
ABOUT = (
    "Continuous-depth networks: weights are functions of depth.\n\n"
    "Each command has its own --help. `continua --version` tells the version."
)
EXTRA = "the command needs more packages; install with `pip install 'continua[recipes]'`"


class Command(Protocol):
    """What `main` asks of a command."""

    def __call__(self) -> int:
        """Run it; the exit code."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit with its code."""
    sys.exit(run(sys.argv[1:] if arguments is None else arguments))


def run(arguments: Sequence[str]) -> int:
    """The exit code: 0, 2 for a user's mistake, or 130 for an interruption."""
    if list(arguments) in (["--version"], ["-V"]):
        print(f"continua {__version__}")
        return DONE
    try:
        return parse(arguments)()
    except ContinuaError as error:
        from continua.train import Interrupted

        complain(str(error))
        return INTERRUPTED if isinstance(error, Interrupted) else MISTAKE
    except ImportError as error:
        return complain(f"{EXTRA} ({error})")
    except KeyboardInterrupt:
        complain("interrupted; files are written whole or not at all")
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output went away; the interpreter must not try to flush it.
        sys.stdout = None
        return DONE
    except OSError as error:
        return complain(str(error))
    except MemoryError:
        return complain("there is not enough memory for this; choose something smaller")


def complain(sentence: str) -> int:
    """One sentence on stderr, and the exit code of a mistake."""
    print("continua:", " ".join(sentence.split()), file=sys.stderr)
    return MISTAKE


def commands() -> dict[str, Callable[..., Command]]:
    """Every command, by name; here and not above, so that `import continua.cli` needs no extra."""
    from continua import recipes

    @dataclasses.dataclass(frozen=True)
    class Json:
        json: bool = False
        """Print one JSON object on stdout, and nothing else there."""

    @dataclasses.dataclass(frozen=True)
    class Demo(Json, recipes.DemoOptions):
        """Train on handwritten digits, compress, and measure both."""

        def __call__(self) -> int:
            return demo(self, self.json)

    @dataclasses.dataclass(frozen=True)
    class Train(Json, recipes.TrainOptions):
        """Train a recipe; the same command goes on with a run that stopped."""

        def __call__(self) -> int:
            return train(self, self.json)

    @dataclasses.dataclass(frozen=True)
    class Evaluate(Json, recipes.EvaluateOptions):
        """Measure the model of a run, or one made from it."""

        def __call__(self) -> int:
            return evaluate(self, self.json)

    @dataclasses.dataclass(frozen=True)
    class Refine(Json, recipes.RefineOptions):
        """Write a model with more basis functions and steps, and the same weights over depth."""

        def __call__(self) -> int:
            return changed(recipes.run_refine(self), self.out, self.json)

    @dataclasses.dataclass(frozen=True)
    class Compress(Json, recipes.CompressOptions):
        """Write a smaller model: fewer basis functions or steps, without data or retraining."""

        def __call__(self) -> int:
            return changed(recipes.run_compress(self), self.out, self.json)

    @dataclasses.dataclass(frozen=True)
    class Sweep(Json, recipes.SweepOptions):
        """Measure a trained model in many sizes: a table, figures, and a sentence for each."""

        def __call__(self) -> int:
            return sweep(self, self.json)

    @dataclasses.dataclass(frozen=True)
    class Export(Json, recipes.ExportOptions):
        """Write the model of a run by itself, to be loaded elsewhere."""

        def __call__(self) -> int:
            return export(self, self.json)

    @dataclasses.dataclass(frozen=True)
    class Reproduce(Json, recipes.ReproduceOptions):
        """Run the experiment behind a table or figure, and write a report."""

        def __call__(self) -> int:
            return reproduce(self, self.json)

    @dataclasses.dataclass(frozen=True)
    class Data(Json, recipes.DataOptions):
        """List the data there is, what it costs and where it lies; or get some."""

        def __call__(self) -> int:
            return data(self, self.json)

    @dataclasses.dataclass(frozen=True)
    class Gradcheck(Json, recipes.GradcheckOptions):
        """Check every gradient method on the blocks of a saved model."""

        def __call__(self) -> int:
            return gradcheck(self, self.json)

    kinds = (
        Demo, Train, Evaluate, Refine, Compress, Sweep, Export, Reproduce, Data, Gradcheck,
    )  # fmt: skip
    return {kind.__name__.lower(): kind for kind in kinds}


# -- options -----------------------------------------------------------------------------------


def parse(arguments: Sequence[str]) -> Command:
    """The command that the arguments name, with its options."""
    import tyro
    from tyro.extras import SubcommandApp

    classes = commands()
    names = ", ".join(classes)
    if not arguments:
        raise ContinuaError(f"say what to do: {names}; `continua --help` tells more")
    if not arguments[0].startswith("-") and arguments[0] not in classes:
        near = difflib.get_close_matches(arguments[0], list(classes), n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there is: {names}"
        raise ContinuaError(f"there is no command {arguments[0]!r}; {hint}")
    app = SubcommandApp()
    for name, command in classes.items():
        app.command(name=name)(command)
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            made: Command = app.cli(
                prog="continua",
                description=ABOUT,
                args=list(arguments),
                config=(tyro.conf.FlagCreatePairsOff,),
            )
    except SystemExit as exit:
        if exit.code in (None, 0):
            raise
        raise ContinuaError(one_sentence(said.getvalue())) from None
    return made


def one_sentence(message: str) -> str:
    """What a message of tyro says between the title and the advice, without frame and colour."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", message)
    lines = [line.strip(" │") for line in plain.splitlines()]
    rules = [i for i, line in enumerate(lines) if re.match(r"[╭╰─]|-{5}", line)]
    said = lines[rules[0] + 1 : rules[1]] if len(rules) > 1 else lines
    sentence = " ".join(said).strip(" .")
    sentence = re.sub(
        r"invalid literal for int\(\) with base 10: (.*)", r"\1 is not a whole number", sentence
    )
    return f"{sentence}; --help tells what there is"


# -- what the commands share ---------------------------------------------------------------------


@contextlib.contextmanager
def progress() -> Iterator[Callable[[Progress], None]]:
    """Something to hand to a recipe: a bar on a terminal, plain lines elsewhere, on stderr."""
    if not sys.stderr.isatty():
        yield PlainLines()
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar
    from rich.table import Column

    # On a narrow terminal the note is cut, not the numbers.
    with Bar(
        TextColumn("{task.description}"),
        BarColumn(bar_width=None, table_column=Column(ratio=1)),
        MofNCompleteColumn(),
        TextColumn(
            "{task.fields[note]}",
            table_column=Column(ratio=3, no_wrap=True, overflow="ellipsis"),
        ),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        expand=True,
    ) as bar:
        tasks: dict[str, int] = {}

        def update(now: Progress) -> None:
            if now.stage not in tasks:
                tasks[now.stage] = bar.add_task(now.stage, total=now.total, note="")
            bar.update(tasks[now.stage], completed=now.done, note=now.note)  # type: ignore[arg-type]

        yield update


class PlainLines:
    """About ten lines of a stage that has something to say, one of any other, one a minute."""

    def __init__(self) -> None:
        self.told: tuple[str, int] | None = None
        self.at = 0.0

    def __call__(self, now: Progress) -> None:
        wanted = {now.total}
        if now.note:
            wanted |= {1, *range(0, now.total, max(now.total // 10, 1))}
        here, clock_time = (now.stage, now.done), time.monotonic()
        fresh = here != self.told and now.done in wanted
        slow = bool(now.note) and clock_time - self.at > 60
        if fresh or slow:
            self.told, self.at = here, clock_time
            note = f": {now.note}" if now.note else ""
            print(f"{now.stage} {now.done}/{now.total}{note}", file=sys.stderr, flush=True)


# -- runs --------------------------------------------------------------------------------------


def train(options: TrainOptions, json: bool) -> int:
    """Train, and tell what came of it."""
    from continua.recipes import RECIPES, run_train

    if options.recipe == "list":
        return listing(RECIPES, json)
    with progress() as watch:
        run, result = run_train(options, RECIPES, watch)
    if json:
        print(json_format.dumps(result | {"folder": str(run.folder)}))
        return DONE
    from continua.recipes import describe_result

    print(describe_result(result))
    print(f"Everything is in {run.folder}. Next: continua sweep {run.folder}")
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
        print(f"{name}: {one.about}")
        for scale, takes in one.takes.items():
            print(f"  --scale {scale:<7} {takes}")
    return DONE


def evaluate(options: EvaluateOptions, json: bool) -> int:
    """Measure a model."""
    from continua.recipes import run_evaluate

    with progress() as watch:
        found = run_evaluate(options, watch)
    if json:
        print(json_format.dumps(found))
        return DONE
    print(
        f"{found['recipe']}: {percent(found['accuracy'])} of the {found['part']} part, "
        f"{found['samples']:,} samples; loss {found['loss']:.4f}; "
        f"{found['parameters']:,} parameters"
    )
    return DONE


def changed(comparison: Comparison, out: Path, json: bool) -> int:
    """Tell how a model differs from the one it was made of."""
    if json:
        before, after = comparison.source.parameters, comparison.target.parameters
        print(json_format.dumps({"out": str(out), "parameters": [before, after]}))
        return DONE
    print(comparison)
    print(f"Written to {out}. Next: continua evaluate {out}")
    return DONE


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
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for name in ("basis", "solver", "by"):
        table.add_column(name, no_wrap=True)
    for name in ("parameters", "accuracy", "ms"):
        table.add_column(name, justify="right", no_wrap=True)
    for trial in (found.source, *found.trials):
        table.add_row(
            f"{trial.basis}({trial.size})",
            f"{trial.scheme} x {trial.steps}",
            trial.method,
            f"{trial.parameters:,}",
            percent(trial.accuracy),
            "" if trial.milliseconds is None else f"{trial.milliseconds:.1f}",
            style="bold" if trial is found.source else None,
        )
    console.print(table)
    console.print(
        f"Accuracy on {found.samples:,} samples of the {found.part} part; ms: median time of "
        f"{found.batch} samples."
    )
    for name, sentence in found.sentences.items():
        console.print(f"{name}: {sentence}", soft_wrap=True)
    where = options.out or options.run / "sweep"
    console.print(f"Table and figures are in {where}.", soft_wrap=True)
    return DONE


def export(options: ExportOptions, json: bool) -> int:
    """Write a model by itself."""
    from continua.recipes import run_export

    out = run_export(options)
    if json:
        print(json_format.dumps({"out": str(out)}))
    else:
        print(f"Written to {out}: continua.load({str(out)!r})")
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
        print(f"{entry.name}: {entry.what}")
        print(f"  {sizes} train / validation / test; {cost}; {entry.licence}")
        print(f"  {entry.where}")
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
        print(report)
        print()
    return DONE


# -- demo --------------------------------------------------------------------------------------

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
    console.print(f"\nTook {clock(report.seconds)}. Everything is in {folder}:")
    for name, what in CONTENTS.items():
        console.print(f"  {name:<14}{what}")
    console.print("\nTry next, in Python:", style="bold")
    # As it is, to be copied: no wrapping, no markup.
    for line in snippet(report):
        print(f"  {line}")
    console.print("\nOr another seed, size or device: continua demo --help", soft_wrap=True)


CONTENTS = {
    "accuracy.png": "accuracy over size",
    "weights.png": "weights over depth, before and after",
    "variance.png": "batch-norm variance over depth",
    "models/": "the models of the table",
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


def percent(share: float) -> str:
    """A share in percent."""
    return f"{100 * share:.2f} %"


def clock(seconds: float) -> str:
    """A duration in words."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
