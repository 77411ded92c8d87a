"""No file and no function is longer than one can keep in mind."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILE_LINES = 350
FUNCTION_LINES = 60  # without its docstring


def sources(*folders: str) -> Iterator[tuple[str, str]]:
    for folder in folders:
        for file in sorted((ROOT / folder).rglob("*.py")):
            yield file.relative_to(ROOT).as_posix(), file.read_text(encoding="utf-8")


def functions(source: str) -> Iterator[tuple[str, int]]:
    """The functions of a file, nested ones too, with their lines."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = node.end_lineno - node.lineno + 1
            if ast.get_docstring(node, clean=False) is not None:
                lines -= node.body[0].end_lineno - node.body[0].lineno + 1
            yield node.name, lines


def test_files():
    long = {
        path: lines
        for path, source in sources("src", "tests", "benchmarks")
        if (lines := len(source.splitlines())) > FILE_LINES
    }
    assert not long, f"files of more than {FILE_LINES} lines: {long}"


def test_functions():
    long = {
        (path, name): lines
        for path, source in sources("src")
        for name, lines in functions(source)
        if lines > FUNCTION_LINES
    }
    assert not long, f"functions of more than {FUNCTION_LINES} lines: {long}"


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("def f():\n    pass", 2),
        ('@cache\ndef f(\n    x,\n):\n    """One.\n\n    Two.\n    """\n    return x', 4),
        ("class A:\n    async def f(self):\n        return 1\n\n\nx = 1", 2),
    ],
)
def test_lines_are_counted_without_the_docstring(source, lines):
    assert list(functions(source)) == [("f", lines)]
