"""JSON that is deep, huge, or of other types than it should be."""

import ast
import json
import os
import random
from contextlib import suppress
from pathlib import Path

import pytest
import torch

import continua as ct
import continua_command
from continua import cli
from continua.files import read_json
from nets import Net

DEEP = 100_000
BAD = {
    "deep lists": "[" * DEEP + "]" * DEEP,
    "deep objects": '{"a":' * DEEP + "1" + "}" * DEEP,
    "deep, not closed": "[" * DEEP,
    "somewhat deep": '{"a":' * 200 + "1" + "}" * 200,
    "a huge integer": '{"a": ' + "9" * 10_000 + "}",
    "a large integer": '{"a": ' + "9" * 20 + "}",
    "a list": "[1]",
    "a number": "1",
    "nothing": "",
    "null": "null",
    "not UTF-8": b'{"a": "\xff"}',
    "two objects": "{}{}",
    "a surrogate": '{"a": "\\ud800"',
}


@pytest.mark.parametrize("name", BAD)
def test_bad_json_is_a_file_error(name, tmp_path):
    path = tmp_path / "config.json"
    content = BAD[name]
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(ct.FileError, match=r"config\.json"):
        read_json(path)
    with pytest.raises(ct.FileError, match=r"config\.json"):
        ct.load(tmp_path)


@pytest.mark.parametrize("text", ['{"a": 1}}', '{"a": [1}', '{"a": [[1}'])
def test_a_wrong_bracket_is_not_called_deep(text, tmp_path):
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(ct.FileError, match=r"line 1 column \d+"):
        read_json(path)


def test_a_file_without_end_is_not_read_to_its_end(tmp_path):
    path = tmp_path / "config.json"
    with path.open("wb") as file:
        file.truncate(2**40)  # a hole
    with pytest.raises(ct.FileError, match="more than 16,777,216 bytes"):
        read_json(path)


def test_a_text_that_never_ends(tmp_path):
    """Each of its quotes could begin a string: looking for the end of every one took forever."""
    path = tmp_path / "config.json"
    path.write_text('{"a": "' + '\\"' * 2**20)
    with pytest.raises(ct.FileError, match="Unterminated string"):
        read_json(path)


def test_what_is_no_regular_file_is_not_opened(tmp_path):
    os.mkfifo(tmp_path / "config.json")  # whoever opens it waits for a writer
    with pytest.raises(ct.FileError, match="no regular file"):
        ct.load(tmp_path)
    (tmp_path / "config.json").unlink()
    folder = ct.save(ct.build(Net), tmp_path)
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors").symlink_to("/dev/zero")
    with pytest.raises(ct.FileError, match="no regular file"):
        ct.load(folder, factory=Net)


@pytest.mark.parametrize("text", ["[" * DEEP, '{"recipe": ' * DEEP, '{"recipe": "a.py:b', "\x00"])
def test_a_run_folder_with_bad_json(text, tmp_path, capsys):
    """The command looks for a hint in it before it imports anything."""
    (tmp_path / "run.json").write_text(text)
    assert continua_command.without_recipe(["evaluate", str(tmp_path), "x" * 5000]) is None
    assert cli.run(["evaluate", str(tmp_path)]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_hint_is_a_name_and_nothing_else(tmp_path):
    for recipe in ("x.py:recipe; rm -rf ~", "$(reboot).py:recipe", "\u202e.py:recipe", "a\nb.py:c"):
        (tmp_path / "run.json").write_text(json.dumps({"recipe": recipe}))
        assert continua_command.without_recipe(["evaluate", str(tmp_path)]) is None


def test_there_is_one_reader_of_json():
    found = {}
    for path in Path(ct.__file__).parents[1].rglob("*.py"):
        calls = [
            node
            for node in ast.walk(ast.parse(path.read_text("utf-8")))
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("json.load", "json.loads")
        ]
        # A round trip through text is no reading of a file.
        calls = [
            c for c in calls if not ast.unparse(c.args[0]).startswith(("json.dumps", "config."))
        ]
        found |= {path.name: len(calls)} if calls else {}
    assert found == {"_disk.py": 1}


def test_brackets_in_strings_are_no_levels(tmp_path):
    path = tmp_path / "some.json"
    value = {"a": "[{" * 500 + '"\\' * 500, "b": [[[{"c": 2**63 - 1}]]]}
    path.write_text(json.dumps(value))
    assert read_json(path) == value


WRONG = [None, True, 0, -1, 2.5, float("nan"), 10**18, "x", "", [], [1], {}, {"type": "Fourier"}]


def places(value, path=()):
    """Where values are in a JSON value."""
    yield path
    if isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(item, (*path, key))


def changed(value, path, new):
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = changed(copy[path[0]], path[1:], new)
    return copy


def test_wrong_types_anywhere_in_a_config(tmp_path):
    model = ct.build(Net, width=4, basis=ct.Fourier(1), solver=ct.Dopri5())
    model.block.gradient = ct.Adjoint(solver=ct.RK4(steps=2))
    elastic = ct.Elastic(ct.build(Net, width=4), [4, 2])
    rng = random.Random(0)
    for name, saved in {"plain": model, "elastic": elastic}.items():
        folder = ct.save(saved, tmp_path / name)
        config = json.loads((folder / "config.json").read_text())
        where = [path for path in places(config) if path]
        for path, new in rng.sample([(p, w) for p in where for w in WRONG], 150):
            text = json.dumps(changed(config, path, new))
            (folder / "config.json").write_text(text)
            with suppress(ct.FileError):
                assert isinstance(ct.load(folder, factory=Net), torch.nn.Module)
