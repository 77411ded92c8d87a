"""`continua gradcheck` on a saved model."""

import json

import pytest
import torch

import continua as ct
from continua import cli
from nets import Net


@pytest.fixture
def folder(tmp_path):
    torch.manual_seed(0)
    return ct.save(ct.build(Net, width=4, solver=ct.Midpoint(steps=4)), tmp_path / "model")


def test_every_block_gets_a_table(folder, capsys):
    assert cli.run(["gradcheck", str(folder), "--trust", "nets", "--shape", "3"]) == 0
    shown = capsys.readouterr().out
    assert "block block" in shown
    assert "Checkpoint(states='sqrt')" in shown


def test_json(folder, capsys):
    assert cli.run(["gradcheck", str(folder), "--shape", "3", "--json", "--trust", "nets"]) == 0
    rows = json.loads(capsys.readouterr().out)["block"]
    exact = [row for row in rows if row["refusal"] is None and "Adjoint" not in row["gradient"]]
    assert len(exact) == 3
    assert all(row["difference"] < 1e-5 for row in exact)


@pytest.mark.parametrize("command", ["gradcheck", "memory"])
@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ([], "give the shape of one input"),
        (["--shape", "7"], "fails on inputs of shape"),
        (["--shape", "3", "--batch-size", "0"], "the batch size is at least 1, not 0"),
    ],
)
def test_mistakes(folder, capsys, command, arguments, match):
    assert cli.run([command, str(folder), "--trust", "nets", *arguments]) == 2
    said = capsys.readouterr()
    assert match in said.err
    assert said.out == ""
    assert len(said.err.splitlines()) == 1
