"""The `continua` command: reads the arguments, runs a command of `_commands`."""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import io
import re
import shutil
import sys
import textwrap
import typing
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Annotated, Any

from continua import ContinuaError, __version__

from ._progress import progress
from ._words import DONE, say

if TYPE_CHECKING:
    from ._commands import Command

__all__ = ["main", "parse", "progress", "run"]

MISTAKE, INTERRUPTED = 2, 130
ABOUT = (
    "Continuous-depth networks: weights are functions of depth.\n\n"
    "Each command has its own --help. `continua --version` prints the version."
)
EXTRA = 'the command needs more packages; install them with `pip install "continua-torch[recipes]"`'


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit with its code."""
    warnings.showwarning = partial(show_warning, warnings.showwarning)
    sys.exit(run(sys.argv[1:] if arguments is None else arguments))


def show_warning(
    others: Callable[..., None],
    message: Warning | str,
    category: type[Warning],
    filename: str,
    *more: Any,
) -> None:
    """A warning of our own as one sentence on stderr; any other as Python shows it."""
    if category is UserWarning and Path(__file__).parents[1] in Path(filename).parents:
        say(f"continua: warning: {' '.join(str(message).split())}", sys.stderr)
    else:
        others(message, category, filename, *more)


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
    say("continua: " + " ".join(sentence.split()), sys.stderr)
    return MISTAKE


def commands() -> dict[str, Callable[..., Command]]:
    """Every command, by name; imported here, so that `import continua.cli` needs no extra."""
    from ._commands import COMMANDS

    return COMMANDS


def parse(arguments: Sequence[str]) -> Command:
    """The command that the arguments name, with its options."""
    import tyro
    from tyro.extras import SubcommandApp

    classes = commands()
    names = ", ".join(classes)
    if not arguments:
        raise ContinuaError(f"name a command: {names}; see `continua --help`")
    if not arguments[0].startswith("-") and arguments[0] not in classes:
        near = difflib.get_close_matches(arguments[0], list(classes), n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"the commands are {names}"
        raise ContinuaError(f"there is no command {arguments[0]!r}; {hint}")
    app = SubcommandApp()
    for name, command in classes.items():
        app.command(name=name)(without_none(command))
    said, told = io.StringIO(), io.StringIO()
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(told):
            made: Command = app.cli(
                prog="continua",
                description=ABOUT,
                args=joined(arguments, classes.get(arguments[0])),
                config=(tyro.conf.FlagCreatePairsOff,),
            )
    except SystemExit as exit:
        if exit.code in (None, 0):
            print(wrapped(told.getvalue()), end="")
            raise
        sentence = one_sentence(said.getvalue())
        if arguments[0] == "train" and (option := re.search(r"options: --(\w\S*)", sentence)):
            sentence += f"; settings are changed with --set {option[1].partition('=')[0]}=..."
        raise ContinuaError(sentence) from None
    return made


def without_none(command: Any) -> Any:
    """The command; its help no longer ends on `(default: None)` where an option is not set."""
    import tyro

    kinds_of = typing.get_type_hints(command, include_extras=True)
    for field in dataclasses.fields(command):
        kind = kinds_of[field.name]
        unset = field.default is None or field.default is False or field.default == ()
        if not unset or typing.get_origin(kind) is Annotated:
            continue
        *kinds, last = typing.get_args(kind) or (kind,)
        metavar = None
        if last is NoneType and len(kinds) == 1:
            choices = typing.get_args(kinds[0])
            metavar = kinds[0].__name__.upper() if not choices else f"{{{','.join(choices)}}}"
        told = tyro.conf.arg(metavar=metavar, help_behavior_hint="")
        command.__annotations__[field.name] = Annotated[kind, told]
    return command


def joined(arguments: Sequence[str], command: Any) -> list[str]:
    """The arguments, with the values of an option that takes several and is repeated in one place.

    The parser would forget all but the last, without a word.
    """
    fields = () if command is None else dataclasses.fields(command)
    several = {
        "--" + field.name.replace("_", "-")
        for field in fields
        if re.fullmatch(r"tuple\[\w+, \.\.\.\]", str(field.type))
    }
    names = [argument.partition("=")[0] for argument in arguments]
    if "--" in names or all(names.count(name) < 2 for name in several):
        return list(arguments)
    values: dict[str, list[str]] = {}
    rest: list[str] = []
    into = rest
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if name in several:
            into = values.setdefault(name, [])
            into += [value] if equals else []
        elif argument.startswith("--"):
            into = rest
            rest.append(argument)
        elif into is values.get("--set") and "=" not in argument:
            rest.append(argument)  # the name of a recipe, not a setting
        else:
            into.append(argument)
    return rest + [word for name, found in values.items() for word in (name, *found)]


def wrapped(text: str) -> str:
    """The help of tyro, which breaks the lines of its tables, but not those above them."""
    width = shutil.get_terminal_size().columns
    lines = [
        line if len(line) <= width else textwrap.fill(line, width, break_on_hyphens=False)
        for line in text.splitlines()
    ]
    return "".join(line.rstrip() + "\n" for line in lines)


def one_sentence(message: str) -> str:
    """What a message of tyro says between the title and the advice, without frame and colour."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", message)
    lines = [line.strip(" │") for line in plain.splitlines()]
    rules = [i for i, line in enumerate(lines) if re.match(r"[╭╰─]|-{5}", line)]
    said = lines[rules[0] + 1 : rules[1]] if len(rules) > 1 else lines
    sentence = " ".join(said).strip(" .")
    sentence = sentence.replace(" or misplaced options", " options")
    sentence = re.sub(
        r" \(applied to [^)]*\)| Arguments are applied to the .*", "", sentence
    ).strip()
    sentence = re.sub(
        r"invalid literal for int\(\) with base 10: (.*)", r"\1 is not a whole number", sentence
    )
    sentence = re.sub(r"Missing from (.*?): (--\S+|[A-Z]+).*", r"\1 needs \2", sentence)
    sentence = sentence.replace(", 'None'", "").replace("'None', ", "")  # an option left out
    return f"{sentence}; --help lists the options"
