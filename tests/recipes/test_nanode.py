"""The studies of NANODE, and the command that measures a model's memory."""

import csv
import json

import pytest
import torch

import continua as ct
from continua import cli
from continua.recipes import STUDIES
from continua.recipes.nanode._memory import METHODS, SIZES, bottleneck, network, sentence
from nets import Net

FLOAT = 4


@pytest.fixture(scope="module")
def smoke(tmp_path_factory):
    folder = tmp_path_factory.mktemp("memory")
    assert (
        cli.run(["reproduce", "nanode/memory", "--scale", "smoke", "--run-dir", str(folder)]) == 0
    )
    return folder


def test_the_field_of_the_paper():
    """Its table says 2.8e-4 GB per set of weights, and ten times as much for ten units."""
    count = sum(p.numel() for p in bottleneck(256).parameters())
    assert count == 256 * 64 + 9 * 64**2 + 64 * 256 + 2 * (256 + 64 + 64)
    assert round(FLOAT * count / 1e9, 5) == 2.8e-4
    size = SIZES["full"]
    block = network("Backprop", 100, size)[1]
    assert sum(p.numel() for p in block.parameters()) == 21 * count  # T-NANODE-10
    units = network("ResNet", 10, size)[1:]
    assert sum(p.numel() for p in units.parameters()) == 10 * count


def test_the_report(smoke):
    text = (smoke / "report.md").read_text()
    facts = json.loads((smoke / "report.json").read_text())
    assert sentence(SIZES["smoke"].steps, facts["growth"]["saved"]) in text
    for key in ("saved", "held", "peak"):
        assert (smoke / f"{key}.png").stat().st_size > 10_000
        assert facts["growth"][key].keys() == {*METHODS, "ResNet"}
        for name, ratio in facts["growth"][key].items():
            measured = facts["measured"][name]
            assert [row["steps"] for row in measured] == [1, 2, 4]
            assert ratio == measured[-1][key] / measured[0][key]
            assert all(row["saved"] <= row["held"] <= row["peak"] for row in measured)
    with (smoke / "memory.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert len(lines) == 3 * 7
    assert {line["model"]: int(line["peak"]) for line in lines} == {
        name: rows[-1]["peak"] for name, rows in facts["measured"].items()
    }


def test_growth_is_that_of_the_theory(smoke):
    facts = json.loads((smoke / "report.json").read_text())
    growth, measured = facts["growth"]["saved"], facts["measured"]
    for name in ("Backprop", "ResNet", "Checkpoint all", "Adjoint interpolate"):
        assert growth[name] == pytest.approx(4, rel=0.1), name
    assert growth["Adjoint backsolve"] == growth["Reversible"] == 1
    assert growth["Checkpoint sqrt"] == 3  # the states at 0, 1 and 3
    size = SIZES["smoke"]
    state = size.batch * size.width * size.side**2 * FLOAT
    assert [row["saved"] for row in measured["Checkpoint all"]] == [state, 2 * state, 4 * state]
    units = [row["parameters"] for row in measured["ResNet"]]
    assert units[2] - units[1] == 2 * (units[1] - units[0])
    assert len({row["parameters"] for row in measured["Reversible"]}) == 1


def test_the_sentence_counts():
    text = sentence((1, 200), {"Backprop": 199.6, "Reversible": 1.0, "Adjoint backsolve": 1.0})
    assert "200 times as many" in text
    assert "199.6 (Backprop), 1.0 (Reversible), 1.0 (Adjoint backsolve)" in text
    assert text.endswith("Reversible and Adjoint backsolve do not grow.")
    assert "none of them stays level" in sentence((1, 2), {"ResNet": 2.0})


def test_it_is_listed():
    assert STUDIES["nanode/memory"].takes.keys() == {"smoke", "laptop", "full"}


# -- the command -------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path):
    torch.manual_seed(0)
    return ct.save(ct.build(Net, width=4, solver=ct.Midpoint(steps=4)), tmp_path / "model")


def test_the_command_shows_the_table(folder, capsys):
    assert cli.run(["memory", str(folder), "--shape", "3", "--trust", "nets"]) == 0
    shown = capsys.readouterr().out
    assert "Adam state" in shown
    assert "Checkpoint(states='sqrt')" in shown
    assert "batch norm in training mode" in shown


def test_the_command_in_json_and_evaluation_mode(folder, capsys):
    command = ["memory", str(folder), "--shape", "3", "--trust", "nets"]
    assert cli.run([*command, "--evaluation", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    rows = {row["gradient"]: row for row in found["rows"]}
    assert rows["Adjoint(state='backsolve', solver=None)"]["refusal"] is None
    assert rows["Reversible()"]["refusal"] is not None
    assert found["optimizer"] > 2 * found["parameters"] > 0
    assert rows["Backprop()"]["saved"] > rows["Checkpoint(states='all')"]["saved"] > 0
