"""Recipes in a file of the user's, by the command."""

import json
import textwrap

import pytest

import continua as ct
import continua_command
from continua import cli, recipes
from continua.recipes import _own
from recipes.commands import run

QUICK = ("--set", "epochs=4", "n=200", "width=4", "--device", "cpu", "--threads", "1")
LOADERS = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
import continua as ct
from continua.train import Training

def mine(rate=0.01):
    x = torch.randn(200, 3)
    data = {"train": DataLoader(TensorDataset(x, (x.sum(1) > 0).long()), batch_size=7)}
    block = ct.ODEBlock(nn.Linear(3, 3), ct.PiecewiseConstant(2), ct.Euler(steps=2))
    course = Training(epochs=2, batch_size=32, optimizer="adam", learning_rate=rate)
    return lambda: nn.Sequential(block, nn.Linear(3, 2)), data, course
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A file that `continua new` wrote, and a run of it."""
    folder = tmp_path_factory.mktemp("own")
    file = folder / "my_file.py"
    assert cli.run(["new", str(file)]) == 0
    assert cli.run(["train", f"{file}:recipe", *QUICK, "--run-dir", str(folder / "run")]) == 0
    return file, folder / "run"


@pytest.fixture
def forgotten(monkeypatch):
    """As in a process that was given no file."""
    monkeypatch.setattr(_own, "OPENED", {})
    monkeypatch.setattr(_own, "_CALLED", {})


def test_a_new_file_is_not_overwritten_unasked(made, capsys):
    file, _ = made
    file.write_text(file.read_text() + "\n# mine\n")
    code, _, err = run(capsys, "new", file)
    assert code == 2
    assert "--force overwrites it" in err
    assert "# mine" in file.read_text()
    assert run(capsys, "new", file, "--force")[0] == 0
    assert "# mine" not in file.read_text()
    assert run(capsys, "new", file.with_name("not a name.py"))[0] == 2


def test_a_run_has_its_settings_and_resumes(made, capsys):
    file, folder = made
    about = json.loads((folder / "run.json").read_text())
    assert about["recipe"] == "my_file.py:recipe"
    assert about["setup"]["settings"] == {"n": 200, "width": 4}
    # The recipe refines at 10 of 20 epochs.
    assert about["setup"]["training"]["refine_epochs"] == [2]
    result = json.loads((folder / "result.json").read_text())
    assert (result["epochs"], result["test_samples"]) == (4, 30)
    again = ("train", f"{file}:recipe", *QUICK, "--run-dir", folder, "--json")
    assert json.loads(run(capsys, *again)[1])["test"] == result["test"]


def test_the_same_file_opens_it_again(made, tmp_path, capsys, forgotten):
    file, folder = made
    own = ("--recipe", f"{file}:recipe")
    for command in ("evaluate", "sweep"):
        code, _, err = run(capsys, command, folder)
        assert code == 2
        assert "--recipe my_file.py:recipe" in err
    assert run(capsys, "evaluate", folder, *own, "--device", "cpu")[0] == 0
    few = ("--bases", "PiecewiseConstant", "--schemes", "Euler", "--steps", "8", "--threads", "1")
    assert run(capsys, "sweep", folder, *own, *few, "--out", tmp_path / "sweep")[0] == 0
    assert (tmp_path / "sweep" / "trials.csv").exists()
    code, out, _ = run(capsys, "compress", folder, tmp_path / "half", *own)
    assert code == 0
    assert f"continua evaluate {tmp_path / 'half'} --recipe" in out
    healing = ("--teacher", folder, "--steps", 2, "--batch-size", 16, "--device", "cpu")
    assert run(capsys, "heal", tmp_path / "half", tmp_path / "healed", *own, *healing)[0] == 0
    found = json.loads(run(capsys, "evaluate", tmp_path / "healed", *own, "--json")[1])
    assert found["samples"] == 30


def test_the_file_is_asked_for_before_torch_is_imported(made, tmp_path):
    _, folder = made
    for arguments in (["evaluate", str(folder)], ["heal", "half", "out", "--teacher", str(folder)]):
        assert "--recipe my_file.py:recipe" in continua_command.without_recipe(arguments)
    free = (
        ["evaluate", str(folder), "--recipe", "x.py"],
        ["evaluate", str(folder), "--recipe=x.py"],
        ["report", str(folder)],
        ["evaluate", str(tmp_path)],
        [],
    )
    assert [continua_command.without_recipe(arguments) for arguments in free] == [None] * 5


def test_two_epochs_are_enough_for_the_file_as_it_is(made, tmp_path, capsys):
    file, _ = made
    short = ("--set", "epochs=2", "n=100", "width=4", "--device", "cpu", "--threads", "1")
    code, out, err = run(capsys, "train", f"{file}:recipe", *short, "--run-dir", tmp_path, "--json")
    assert code == 0, err
    assert json.loads(out)["epochs"] == 2


def test_nothing_runs_because_a_folder_says_so(made, tmp_path, capsys, forgotten):
    _, folder = made
    trap = tmp_path / "my_file.py"
    trap.write_text("raise SystemExit('a folder made continua run this')")
    code, _, err = run(capsys, "evaluate", folder)
    assert code == 2
    assert "has to be named again" in err
    best = next((folder / "checkpoints").glob("step-*"))
    with pytest.raises(ct.FileError, match="named again"):
        ct.load(best)


def test_loaders(tmp_path, capsys):
    file = tmp_path / "loading.py"
    file.write_text(LOADERS)
    where = ("--run-dir", tmp_path / "run", "--device", "cpu", "--threads", "1")
    code, out, err = run(capsys, "train", f"{file}:mine", *where, "--set", "rate=0.02", "--json")
    assert code == 0, err
    result = json.loads(out)
    assert (result["recipe"], result["test_samples"]) == ("loading.py:mine", 20)
    own = ("--recipe", f"{file}:mine", "--json")
    found = json.loads(run(capsys, "evaluate", tmp_path / "run", *own)[1])
    assert found["accuracy"] == result["test"]["accuracy"]


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("def recipe(width): ...", "'width', which has no default"),
        ("def recipe(): return 1", "returns three things"),
        ("def recipe(): return (print, {}, 3)", "not a Training"),
        ("x = 1", "has no function 'recipe'"),
        ("import nowhere_to_be_found", "cannot be imported: No module named"),
        ("def recipe(:", "cannot be imported: invalid syntax"),
    ],
)
def test_a_file_that_cannot_work(source, said, tmp_path, capsys):
    file = tmp_path / "wrong.py"
    file.write_text(textwrap.dedent(source))
    code, _, err = run(capsys, "train", f"{file}:recipe", "--run-dir", tmp_path / "run")
    assert code == 2
    assert said in err
    assert not (tmp_path / "run").exists()


def test_every_setting_is_shown(made, capsys):
    file, _ = made
    code, out, _ = run(capsys, "train", f"{file}:recipe", "--show", "--set", "width=5")
    assert code == 0
    assert "width=5\n    of the hidden state." in out
    for recipe in ("stateful/digits", "dissecting/reflection", "nanode/moving-mnist"):
        if recipe in recipes.RECIPES:
            found = json.loads(run(capsys, "train", recipe, "--show", "--json")[1])
            assert {"epochs", "learning_rate", "samples"} <= found.keys()
            assert [name for name, one in found.items() if not one["meaning"]] == []


@pytest.mark.parametrize(
    ("setting", "refined", "warmup"), [("epochs=4", (1, 2), 0.4), ("epochs=60", (10, 24), 6.0)]
)
def test_milestones_move_with_the_epochs(setting, refined, warmup):
    training = recipes.RECIPES["stateful/digits"].run(settings=(setting,)).setup.training
    assert training.refine_epochs == refined
    assert training.warmup == pytest.approx(warmup)
    own = recipes.RECIPES["stateful/digits"].run(settings=(setting, "refine_epochs=(3,)"))
    assert own.setup.training.refine_epochs == (3,)


def test_too_few_epochs_print_the_line_that_works():
    recipe = recipes.RECIPES["stateful/digits"]
    with pytest.raises(ct.ArgumentError, match=r"--set epochs=2 'refine_epochs=\(1,\)'"):
        recipe.run(settings=("epochs=2",))
    assert recipe.run(settings=("epochs=2", "refine_epochs=(1,)")).setup.training.epochs == 2


def test_small_mistakes(capsys, tmp_path):
    assert "did you mean 'stateful/digits'?" in run(capsys, "train", "digits")[2]
    code, _, err = run(capsys, "train", "stateful/digits", "--data", "/nowhere")
    assert code == 2
    assert "--data /nowhere" in err
    file = tmp_path / "loading.py"
    file.write_text(LOADERS)
    said = run(capsys, "train", f"{file}:mine", "--set", "rat=1")[2]
    assert "did you mean 'rate'?" in said
