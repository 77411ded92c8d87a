"""JSON that is deep, huge, or of other types than it should be."""

import json
import random
from contextlib import suppress

import pytest
import torch

import continua as ct
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


def test_a_file_without_end_is_not_read_to_its_end(tmp_path):
    path = tmp_path / "config.json"
    with path.open("wb") as file:
        file.truncate(2**40)  # a hole
    with pytest.raises(ct.FileError, match="more than 67,108,864 bytes"):
        read_json(path)


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
