"""Runs from the first step to the result, through the command."""

import json
import shutil
import subprocess
import sys
from dataclasses import replace

import pytest

import continua as ct
from continua.recipes import RECIPES, STUDIES, Run, parse_basis, parse_solver
from continua.recipes._setup import setup_from_config
from recipes.commands import SETTINGS, run

# -- names and settings ------------------------------------------------------------------------


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)
def test_every_recipe_at_every_scale_is_a_value(recipe):
    assert recipe.scales.keys() == recipe.takes.keys()
    for scale in recipe.scales:
        made = recipe.run(scale, seed=3)
        assert setup_from_config(json.loads(json.dumps(made.setup.config()))) == made.setup
        assert made.setup.training.seed == 3


@pytest.mark.parametrize("name", STUDIES)
def test_every_study_has_its_own_name(name):
    assert STUDIES[name].name == name
    assert STUDIES[name].about


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("PiecewiseConstant(4)", ct.PiecewiseConstant(4)),
        ("Fourier(2, period=2.0)", ct.Fourier(2, period=2.0)),
        ("Constant", ct.Constant()),
    ],
)
def test_bases_as_text(text, expected):
    assert parse_basis(text) == expected


@pytest.mark.parametrize(
    "text", ["PiecewiseConstnat(4)", "__import__('os')", "Fourier(", "Fourier(1)(2)", "4", "a.b(1)"]
)
def test_text_that_is_no_basis(text):
    with pytest.raises(ct.ArgumentError):
        parse_basis(text)


def test_solvers_as_text():
    assert parse_solver("RK4(steps=8)") == ct.RK4(steps=8)
    with pytest.raises(ct.ArgumentError, match="did you mean 'Dopri5'"):
        parse_solver("Dopr5(rtol=1e-3)")


def test_settings():
    setup = (
        RECIPES["stateful/digits"]
        .run(
            "smoke",
            settings=(
                "epochs=7", "training.learning_rate=1", "basis=Fourier(2)", "samples=none",
                "refine_epochs=(2, 3)", "schedule=step", "mirror=true", "milestones=4",
            ),
        )
        .setup
    )  # fmt: skip
    assert (setup.training.epochs, setup.training.learning_rate) == (7, 1.0)
    assert (setup.basis, setup.samples, setup.mirror) == ("Fourier(2)", None, True)
    assert setup.training.refine_epochs == (2, 3)
    assert (setup.training.schedule, setup.training.milestones) == ("step", (4,))


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("epoch=3", "did you mean 'epochs'"),
        ("epochs", "name=value"),
        ("epochs=three", "epochs='three' is not a whole number"),
        ("mirror=maybe", "mirror='maybe' is not true or false"),
        ("epochs=0", "at least 1"),
        ("schedule=cosin", "schedule='cosin' is not "),
        ("learning_rate=-1", "positive"),
    ],
)
def test_settings_that_cannot_be(setting, message, capsys, tmp_path):
    code, out, err = run(
        capsys, "train", "stateful/digits", *SETTINGS, "--run-dir", tmp_path / "a", "--set", setting
    )
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1
    assert not (tmp_path / "a").exists()


# -- a run -------------------------------------------------------------------------------------


def test_a_run_folder_explains_itself(trained):
    names = {path.name for path in trained.iterdir()}
    assert names >= {
        "run.json", "environment.json", "metrics.jsonl", "checkpoints", "result.json", "README.txt",
        "lock", "figures",
    }  # fmt: skip
    lines = [json.loads(line) for line in (trained / "metrics.jsonl").read_text().splitlines()]
    assert [line["epoch"] for line in lines] == [1, 2, 3, 4]
    assert [line["functions"] for line in lines] == [1, 2, 4, 4]
    assert json.loads((trained / "result.json").read_text())["test_samples"] == 450


def test_the_same_command_again_changes_nothing(trained, capsys):
    before = (trained / "result.json").read_bytes()
    code, out, _ = run(
        capsys, "train", "stateful/digits", *SETTINGS, "--run-dir", trained, "--json"
    )
    assert code == 0
    assert json.loads(out)["epochs"] == 4
    assert (trained / "result.json").read_bytes() == before


def test_a_folder_of_another_run_is_refused(trained, capsys, tmp_path):
    for arguments, message in (
        (("stateful/digits", "--seed", "1"), "with seed=0 where this one has 1"),
        (("stateful/circles",), "holds another run, stateful/digits"),
    ):
        code, _, err = run(capsys, "train", *arguments, *SETTINGS, "--run-dir", trained)
        assert code == 2
        assert message in err
    (tmp_path / "notes.txt").write_text("mine")
    code, _, err = run(capsys, "train", "stateful/digits", *SETTINGS, "--run-dir", tmp_path)
    assert code == 2
    assert "is not empty and holds no run" in err


def test_a_run_killed_at_its_very_beginning_goes_on(trained, tmp_path):
    (tmp_path / ".run.json-abc").write_text('{"form')
    begun = replace(Run.open(trained), folder=tmp_path)
    begun.check()
    dataset = begun.load()[0]
    begun.begin(dataset)
    for name in ("environment.json", "README.txt"):
        (tmp_path / name).unlink()
    begun.check()
    begun.begin(dataset)
    assert {"run.json", "environment.json", "README.txt"} <= {p.name for p in tmp_path.iterdir()}


def test_a_folder_in_which_another_process_trains(trained, capsys):
    pytest.importorskip("fcntl")
    program = (
        "import fcntl, sys; file = open(sys.argv[1]); fcntl.flock(file, fcntl.LOCK_EX); "
        "print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, trained / "lock"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as other:
        assert other.stdout.readline() == b"held\n"
        code, _, err = run(capsys, "train", "stateful/digits", *SETTINGS, "--run-dir", trained)
        other.stdin.close()
    assert code == 2
    assert "another process trains in" in err
    assert run(capsys, "train", "stateful/digits", *SETTINGS, "--run-dir", trained)[0] == 0


def test_evaluate_agrees_with_the_result(trained, capsys):
    code, out, _ = run(capsys, "evaluate", trained, "--json", "--device", "cpu")
    assert code == 0
    result = json.loads((trained / "result.json").read_text())
    assert json.loads(out)["accuracy"] == result["test"]["accuracy"]


def test_a_cut_checkpoint_is_named(trained, capsys, tmp_path):
    damaged = tmp_path / "run"
    shutil.copytree(trained, damaged)
    for weights in damaged.glob("checkpoints/*/model.safetensors"):
        weights.write_bytes(weights.read_bytes()[:100])
    for command in ("evaluate", "sweep"):
        code, _, err = run(capsys, command, damaged)
        assert code == 2
        assert "model.safetensors" in err
        assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "stateful/digit"], "did you mean 'stateful/digits'"),
        (["reproduce", "stateful/norm"], "did you mean 'stateful/norms'"),
        (["sweep", "nowhere"], "no folder"),
        (["evaluate", "nowhere"], "no folder"),
        (["data", "mnits"], "did you mean"),
        (["train", "stateful/cifar100", "--scale", "laptop"], "has no scale 'laptop'"),
        (["reproduce", "stateful/norms", "--scale", "night"], "has no scale 'night'; it has smoke"),
    ],
)
def test_mistakes(arguments, message, capsys):
    code, out, err = run(capsys, *arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


def test_lists(capsys):
    assert "stateful/ewt" in run(capsys, "train", "list")[1]
    assert "stateful/integrators" in run(capsys, "reproduce", "list")[1]
    listing = run(capsys, "data")[1]
    assert "cifar10" in listing
    assert "embedded" in listing


WITHOUT_TABLE = {
    "dissecting/adaptive-depth",
    "dissecting/tracking",
    "dissecting/input-network",
}
SMALL = [
    "stateful/digits",
    "stateful/integrators",
    "stateful/integrators-refined",
    "stateful/norms",
    *(name for name in STUDIES if name.startswith("dissecting/")),
]


@pytest.mark.parametrize("name", SMALL)
def test_studies_at_smoke_scale(name, capsys, tmp_path):
    code, out, _ = run(capsys, "reproduce", name, *SETTINGS, "--run-dir", tmp_path)
    assert code == 0
    report = (tmp_path / "report.md").read_text()
    assert f"continua reproduce {name} --scale smoke --seed 0" in report
    assert ("|---|" in report) == (name not in WITHOUT_TABLE)
    assert json.loads((tmp_path / "report.json").read_text())["scale"] == "smoke"
    assert report in out


def test_settings_are_made_together():
    for settings in (("epochs=1", "refine_epochs=()"), ("refine_epochs=()", "epochs=1")):
        made = RECIPES["stateful/digits"].run("smoke", settings=settings).setup.training
        assert (made.epochs, made.refine_epochs) == (1, ())


@pytest.mark.parametrize("setting", ["width=0", "basis=Foo(1)", "data=moons", "stages=99"])
def test_a_run_that_cannot_begin_leaves_nothing_behind(setting, capsys, tmp_path):
    code, _, err = run(
        capsys, "train", "stateful/digits", *SETTINGS, "--run-dir", tmp_path, "--set", setting
    )
    assert code == 2
    assert err.splitlines()[-1].startswith("continua: ")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("run.json", lambda found: found | {"setup": "abc"}),
        ("run.json", lambda found: found | {"setup": found["setup"] | {"training": "abc"}}),
        ("run.json", lambda found: found | {"format": 99}),
        ("run.json", lambda found: {}),
        ("run.json", lambda found: None),
        ("result.json", lambda found: {}),
        ("result.json", lambda found: []),
    ],
)
def test_a_damaged_file_of_a_run_is_named(name, change, trained, capsys, tmp_path):
    damaged = tmp_path / "run"
    shutil.copytree(trained, damaged)
    (damaged / name).write_text(json.dumps(change(json.loads((damaged / name).read_text()))))
    code, out, err = run(capsys, "train", "stateful/digits", *SETTINGS, "--run-dir", damaged)
    assert (code, out) == (2, "")
    assert name in err.splitlines()[-1]


def test_checkpoints_that_are_gone_are_not_made_again_beside_an_old_result(
    trained, capsys, tmp_path
):
    folder = tmp_path / "run"
    shutil.copytree(trained, folder)
    shutil.rmtree(folder / "checkpoints")
    code, out, err = run(capsys, "train", "stateful/digits", *SETTINGS, "--run-dir", folder)
    assert (code, out) == (2, "")
    assert "remove result.json to train again" in err
    (folder / "result.json").unlink()
    assert run(capsys, "train", "stateful/digits", *SETTINGS, "--run-dir", folder)[0] == 0


def test_a_run_without_data_leaves_no_folder(capsys, tmp_path):
    nowhere, folder = tmp_path / "nowhere", tmp_path / "run"
    code, _, _ = run(
        capsys, "train", "stateful/mnist", *SETTINGS, "--data", nowhere, "--run-dir", folder
    )
    assert code == 2
    assert not folder.exists()


def test_the_list_of_studies_as_json(capsys):
    found = json.loads(run(capsys, "reproduce", "list", "--json")[1])
    assert found["stateful/norms"]["takes"]["smoke"] == "seconds"
