"""The rooms of continua and the direction in which they may import each other.

The rules are the tables below; everything after them is the checker. It reads the syntax tree of
every source file, so an import inside a function or under TYPE_CHECKING counts like any other.
"""

import ast
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import pytest

# A room may import itself and the rooms above it.
# `plot` stands before `recipes`, so that a recipe can draw its figure.
ROOMS = (
    "_errors",
    "_tables",
    "_values",
    "basis",
    "solve",
    "gradient",
    "field",
    "block",
    "transform",
    "files",
    "measure",
    "models",
    "data",
    "train",
    "plot",
    "recipes",
    "cli",
    "__main__",
)

# What every room below them may import.
FOR_ALL = ("_errors", "_tables", "_values")

# Rooms that may import less than all that stands above them, besides what is for all.
ONLY = {
    "basis": (),
    "solve": (),
    "gradient": ("solve",),
    "field": ("basis",),
    "block": ("basis", "solve", "gradient", "field"),
    "data": (),
}

# Rooms that use the library as its users do, through `import continua`. Elsewhere that import
# would reach every room at once, also those below.
MAY_IMPORT_ROOT = ("recipes", "cli")

# What any room may take from `continua` itself.
ROOT_NAMES = ("__version__",)

PACKAGE = "continua"
ROOT = "__init__"  # the room of continua/__init__.py
SOURCE = Path(__file__).parents[1] / "src" / PACKAGE


class Import(NamedTuple):
    """One name that one line imports from continua: `target` is dotted, without "continua"."""

    line: int
    target: tuple[str, ...]
    written: str


def allowed(room: str) -> tuple[str, ...]:
    if room == ROOT:
        return ROOMS
    above = ROOMS[: ROOMS.index(room)]
    return tuple(r for r in above if r in FOR_ALL or r in ONLY.get(room, above))


def room_of(path: PurePosixPath) -> str:
    """The room of a file, its path being relative to the package."""
    return path.parts[0].removesuffix(".py")


def imports(source: str, path: PurePosixPath) -> Iterator[Import]:
    """Everything that a file imports from continua, relative imports resolved."""
    package = (PACKAGE, *path.parent.parts)
    for node in ast.walk(ast.parse(source, str(path))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                top, *rest = alias.name.split(".")
                if top == PACKAGE:
                    yield Import(node.lineno, tuple(rest), f"import {alias.name}")
        elif isinstance(node, ast.ImportFrom):
            module = tuple(node.module.split(".")) if node.module else ()
            if node.level:
                module = package[: max(len(package) - node.level + 1, 0)] + module
            if module[:1] == (PACKAGE,):
                start = "." * node.level + (node.module or "")
                for alias in node.names:
                    written = f"from {start} import {alias.name}"
                    yield Import(node.lineno, (*module[1:], alias.name), written)


def public_names(source: str) -> set[str] | None:
    """The `__all__` of a file, or None if it has none that can be read."""
    for node in ast.parse(source).body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(t, ast.Name) and t.id == "__all__" for t in targets):
            try:
                return set(ast.literal_eval(node.value))
            except ValueError:
                return None
    return None


def wrong_directions(source: str, path: PurePosixPath) -> Iterator[str]:
    """Imports of a room that this room may not import."""
    room = room_of(path)
    if room != ROOT and room not in ROOMS:
        yield f"{path}:1: '{room}' is not a room; rooms are {', '.join(ROOMS)}"
        return
    for line, target, written in imports(source, path):
        here = f"{path}:{line}: room '{room}'"
        imported = target[0] if target else ROOT
        if imported == room or imported in allowed(room):
            continue
        if imported in ROOMS:
            may = ", ".join(allowed(room)) or "no other room"
            yield f"{here} imports room '{imported}' (`{written}`); it may import {may}"
        elif len(target) > 1:
            yield f"{here} imports '{imported}' (`{written}`), which is not a room"
        elif room not in MAY_IMPORT_ROOT and imported not in ROOT_NAMES:
            yield f"{here} imports room '{PACKAGE}' (`{written}`); import the room that defines it"


def private_imports(source: str, path: PurePosixPath) -> Iterator[str]:
    """Imports of another room's private modules or names."""
    room = room_of(path)
    for line, target, written in imports(source, path):
        if not target or target[0] == room or target[0] not in ROOMS:
            continue
        private = [part for part in target[1:] if part.startswith("_")]
        if private:
            yield (
                f"{path}:{line}: room '{room}' imports {private[0]}, which is private to room "
                f"'{target[0]}' (`{written}`)"
            )


def unlisted_names(
    source: str, path: PurePosixPath, public: dict[str, set[str] | None]
) -> Iterator[str]:
    """Names in continua/__init__.py that do not stand in the `__all__` of their room."""
    for line, target, written in imports(source, path):
        if len(target) < 2 or target[0] not in public:
            continue  # a whole room, or not a room: `wrong_directions` tells
        names = public[target[0]]
        here = f"{path}:{line}: room '{PACKAGE}' imports"
        if names is None:
            yield f"{here} room '{target[0]}' (`{written}`), which has no literal __all__"
        elif len(target) > 2:
            yield f"{here} from inside room '{target[0]}' (`{written}`)"
        elif target[1] not in names:
            yield f"{here} {target[1]} (`{written}`), not in the __all__ of room '{target[0]}'"


def public_files(paths: list[PurePosixPath]) -> Iterator[str]:
    """Files inside a room whose names do not say that they are private."""
    for path in paths:
        if len(path.parts) > 1 and not any(part.startswith("_") for part in path.parts[1:]):
            yield (
                f"{path}: a module inside room '{room_of(path)}' is private: name it _{path.name}"
            )


@pytest.fixture(scope="module")
def files() -> dict[PurePosixPath, str]:
    found = {
        PurePosixPath(file.relative_to(SOURCE).as_posix()): file.read_text(encoding="utf-8")
        for file in sorted(SOURCE.rglob("*.py"))
    }
    assert PurePosixPath("__init__.py") in found, f"no package in {SOURCE}"
    return found


def fail_on(problems: list[str]) -> None:
    if problems:
        pytest.fail("\n".join(f"src/{PACKAGE}/{p}" for p in problems), pytrace=False)


def test_rooms_import_only_rooms_above_them(files):
    fail_on([p for path, source in files.items() for p in wrong_directions(source, path)])


def test_no_room_imports_what_is_private_to_another(files):
    fail_on([p for path, source in files.items() for p in private_imports(source, path)])


def test_modules_inside_a_room_are_private(files):
    fail_on(list(public_files(list(files))))


def test_the_package_imports_only_what_rooms_list(files):
    public = {
        room_of(path): public_names(source)
        for path, source in files.items()
        if room_of(path) in ROOMS and (len(path.parts) == 1 or path.parts[1:] == ("__init__.py",))
    }
    path = PurePosixPath("__init__.py")
    fail_on(list(unlisted_names(files[path], path, public)))


# The checker itself, on sources that break each rule.


def test_tables_agree():
    for room, only in ONLY.items():
        above = ROOMS[: ROOMS.index(room)]
        assert set(only) <= set(above), f"{room}: {set(only) - set(above)} do not stand above it"
    assert set(MAY_IMPORT_ROOT) <= set(ROOMS)


@pytest.mark.parametrize(
    ("path", "source", "imported"),
    [
        ("basis/_hat.py", "from continua.block import ODEBlock", "block"),
        ("basis/_hat.py", "import continua.solve", "solve"),
        ("basis/_hat.py", "import torch, continua.solve as cs", "solve"),
        ("basis/_hat.py", "from ..solve import Point", "solve"),
        ("basis/_hat.py", "from .. import solve", "solve"),
        ("basis/deep/_hat.py", "from ...solve import Point", "solve"),
        ("basis/__init__.py", "from ..field import Field", "field"),
        ("block.py", "from .transform import refine", "transform"),
        ("block.py", "from . import transform", "transform"),
        ("gradient/_adjoint.py", "def f():\n    from continua.basis import Basis", "basis"),
        (
            "field/_control.py",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from continua import solve",
            "solve",
        ),
        ("data/_toy.py", "from continua.basis import Fourier", "basis"),
        ("plot/_depth.py", "from continua.recipes import table", "recipes"),
        ("_errors.py", "from continua.basis import Basis", "basis"),
        ("_values.py", "from continua.basis import Basis", "basis"),
        ("solve/_grid.py", "import continua as ct", "continua"),
        ("solve/_grid.py", "from continua import ODEBlock", "continua"),
    ],
)
def test_checker_sees_a_wrong_direction(path, source, imported):
    (problem,) = wrong_directions(source, PurePosixPath(path))
    line = source.count("\n") + 1
    assert problem.startswith(f"{path}:{line}: room '{room_of(PurePosixPath(path))}' imports ")
    assert f"room '{imported}'" in problem


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("basis/_hat.py", "import torch\nfrom continua._errors import ContinuaError"),
        ("basis/_hat.py", "from continua._values import value"),
        ("basis/_hat.py", "from ._base import Basis\nfrom continua.basis._base import Basis"),
        ("basis/_hat.py", "from .._errors import ContinuaError"),
        ("block.py", "from .basis import Basis\nfrom . import solve, _errors"),
        ("files/_save.py", "from continua import __version__"),
        ("recipes/_table.py", "import continua as ct\nfrom continua.plot import curve"),
        ("cli.py", "from continua import ODEBlock, recipes"),
        ("solve/_grid.py", "import continuation\nfrom continuation.block import x"),
        ("__init__.py", "from continua.basis import Basis\nfrom .block import ODEBlock"),
    ],
)
def test_checker_lets_a_right_import_pass(path, source):
    assert not list(wrong_directions(source, PurePosixPath(path)))
    assert not list(private_imports(source, PurePosixPath(path)))


@pytest.mark.parametrize(
    ("path", "source"),
    [("tools/_x.py", "import torch"), ("block.py", "from continua.tools import x")],
)
def test_checker_sees_what_is_not_a_room(path, source):
    (problem,) = wrong_directions(source, PurePosixPath(path))
    assert "'tools'" in problem
    assert "not a room" in problem


@pytest.mark.parametrize(
    "source",
    [
        "from continua.basis._hat import Hat",
        "from continua.basis import _hat",
        "import continua.basis._hat",
        "from .basis._hat import Hat",
    ],
)
@pytest.mark.parametrize("path", ["block.py", "__init__.py"])
def test_checker_sees_a_private_import(path, source):
    (problem,) = private_imports(source, PurePosixPath(path))
    assert problem.startswith(f"{path}:1: ")
    assert "_hat, which is private to room 'basis'" in problem


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("from continua.basis import Basis, Hat", "imports Hat"),
        ("from continua.basis import *", "imports *"),
        ("from .basis._hat import Basis", "from inside room 'basis'"),
        ("from .solve import Euler", "no literal __all__"),
    ],
)
def test_checker_sees_an_unlisted_name(source, said):
    public = {"basis": public_names('__all__ = ["Basis"]'), "solve": public_names("x = 1")}
    (problem,) = unlisted_names(source, PurePosixPath("__init__.py"), public)
    assert said in problem


def test_checker_sees_a_public_file():
    paths = [PurePosixPath(p) for p in ("block.py", "basis/__init__.py", "basis/hat.py")]
    (problem,) = public_files(paths)
    assert problem.startswith("basis/hat.py: ")
