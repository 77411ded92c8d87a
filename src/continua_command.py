"""The `continua` command: answers what it can itself, without importing torch."""

from __future__ import annotations

import contextlib
import re
import shlex
import shutil
import sys
import textwrap
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

ABOUT = "Continuous-depth networks: weights are functions of depth."
#: every command and what it does, as its own --help says
COMMANDS = {
    "demo": "Train a digit classifier, compress it, train all sizes at once, and measure them.",
    "new": "Write an example file with a model, data and training, for you to change.",
    "train": "Train a recipe; run the same command again to resume.",
    "evaluate": "Measure a trained, compressed or healed model on its data.",
    "refine": "Write a model with more basis functions and steps, and the same weights over depth.",
    "compress": "Write a model with fewer basis functions or steps, without retraining.",
    "heal": "Train a compressed model to match the larger one, without labels.",
    "sweep": "Measure a trained model in many sizes; write a table, figures and report.html.",
    "report": "Write the report.html of a sweep, a demo or a study again, and open it.",
    "export": "Write a model as ONNX or safetensors, to use elsewhere.",
    "reproduce": "Run the experiment behind a table or figure of a paper, and write a report.",
    "data": "List the datasets, their sizes and folders; or download one.",
    "gradcheck": "Check every gradient method on the blocks of a saved model.",
    "memory": "Measure the memory that training a saved model takes, for every gradient method.",
    "cache": "Show where compiled steps are stored and how large they are; or delete them.",
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit with its code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given in (["--help"], ["-h"]):
        tell(usage(shutil.get_terminal_size().columns))
    elif given in (["--version"], ["-V"]):
        tell(f"continua {version()}")
    elif (said := without_recipe(given)) is not None:
        print(f"continua: {said}", file=sys.stderr)
        sys.exit(2)
    else:
        from continua.cli import main as run

        run(given)


def tell(text: str) -> None:
    """Print a text, unless whoever read our output went away."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        sys.stdout = None  # or the interpreter would flush it again


def usage(columns: int) -> str:
    """What there is, in lines of at most so many columns where words allow it."""
    width = min(max(columns, 30), 100)
    lines = ["usage: continua COMMAND ...", "", *textwrap.wrap(ABOUT, width), "", "commands:"]
    for name, what in COMMANDS.items():
        first, later = f"  {name:<10} ", " " * 13
        lines += textwrap.wrap(
            what, width, initial_indent=first, subsequent_indent=later, break_on_hyphens=False
        )
    more = "Each command has its own --help. `continua --version` prints the version."
    return "\n".join([*lines, "", *textwrap.wrap(more, width)])


def without_recipe(arguments: Sequence[str]) -> str | None:
    """What to say if a folder comes from a file of the user's that the arguments do not name.

    The name in the folder is only a hint: no folder decides which code runs.
    """
    command, *rest = arguments or [""]
    free = {"demo", "new", "train", "report", "reproduce", "data"}
    if command not in COMMANDS.keys() - free or any(
        word in ("-h", "--help") or word.partition("=")[0] == "--recipe" for word in rest
    ):
        return None
    for folder in rest:
        for file in (Path(folder, "run.json"), Path(folder, "origin.json")):
            head = ""
            with contextlib.suppress(OSError, ValueError):
                if file.is_file():
                    with file.open("rb") as opened:
                        head = opened.read(2**16).decode("utf-8", "replace")
            told = re.search(r'"recipe": "([\w./ -]{1,99}\.py:\w{1,99})"', head)
            if told is not None:
                return (
                    f"{folder} was trained by {told[1]}, a file of yours that has to be named "
                    f"again: --recipe {shlex.quote(told[1])}"
                )
    return None


def version() -> str:
    """The version of the installed package, which is not imported."""
    package = find_spec("continua")
    assert package is not None
    assert package.origin is not None
    found = re.search(r'^__version__ = "(.*)"', Path(package.origin).read_text("utf-8"), re.M)
    assert found is not None
    return found[1]
