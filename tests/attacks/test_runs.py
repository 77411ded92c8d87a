"""Runs that two processes want, and runs that lost something."""

import json
import shutil
import subprocess
import sys

import pytest

import continua as ct
from attacks.crafted import with_checksums
from continua.recipes import RECIPES
from continua.train import LOCK, Checkpoints, held_alone, read_history
from train.subjects import course, run

HOLD = """
import fcntl, sys
with open(sys.argv[1], "ab") as file:
    fcntl.flock(file, fcntl.LOCK_EX)
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def other():
    """Something that locks a file in another process, until the test has ended."""
    started = []

    def hold(path):
        process = subprocess.Popen(
            [sys.executable, "-c", HOLD, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        assert process.stdout.readline() == "held\n"
        return process

    yield hold
    for process in started:
        process.communicate(timeout=30)


def contents(folder):
    return {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such locks")
def test_the_second_of_two_processes_neither_reads_nor_writes(tmp_path, other):
    run(tmp_path, course(epochs=1))
    (tmp_path / "checkpoints" / "index.json").write_text("damaged")
    number = (tmp_path / LOCK).stat().st_ino
    process = other(tmp_path / LOCK)
    before = contents(tmp_path)
    with pytest.raises(ct.FileError, match="another process trains in"):
        run(tmp_path, course(epochs=2))
    recipe = RECIPES["stateful/digits"].run("smoke", folder=tmp_path)
    with pytest.raises(ct.FileError, match="another process trains in"):
        recipe.train("cpu")
    assert contents(tmp_path) == before
    process.communicate(timeout=30)
    (tmp_path / "checkpoints" / "index.json").unlink()
    run(tmp_path, course(epochs=2))
    assert (tmp_path / LOCK).stat().st_ino == number


def test_a_folder_in_which_nothing_began_is_left_as_it_was(tmp_path):
    for folder in (tmp_path / "new", tmp_path):
        with pytest.raises(ZeroDivisionError), held_alone(folder), held_alone(folder):
            raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Two epochs, the first of which stays the best."""
    folder = tmp_path_factory.mktemp("trained")
    run(folder, course(epochs=3, learning_rate=1e-9))
    return folder


@pytest.fixture
def folder(trained, tmp_path):
    return shutil.copytree(trained, tmp_path / "run")


def go_on(folder):
    return run(folder, course(epochs=4, learning_rate=1e-9))


def test_a_deleted_best_checkpoint(folder, caplog):
    best = Checkpoints(folder).best()
    assert best != Checkpoints(folder).last()
    shutil.rmtree(best)
    outcome = go_on(folder)
    assert "goes on without the best checkpoint (accuracy " in caplog.text
    assert outcome.position.epoch == 4
    assert Checkpoints(folder).has_best()


@pytest.mark.parametrize("cut", ["a line", "half a line", "all"])
def test_cut_metrics(folder, caplog, cut):
    path = folder / "metrics.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    left = {"a line": lines[:2], "half a line": [*lines[:1], lines[1][:20], "\n", lines[2]]}
    path.write_text("".join(left.get(cut, [])))
    go_on(folder)
    kept = {"a line": [1, 2], "half a line": [1], "all": []}[cut]
    assert [line["epoch"] for line in read_history(folder)] == [*kept, 4]
    lost = 3 - len(kept)
    assert f"goes on without the measures of {lost} of 3 epochs" in caplog.text


def test_another_number_of_processes(folder, caplog):
    last = Checkpoints(folder).last()
    state = json.loads((last / "training.json").read_text())
    state["about"]["processes"] = 2
    (last / "training.json").write_text(json.dumps(state))
    with_checksums(last)
    assert go_on(folder).position.epoch == 4
    assert "without the same bits: it had 2 processes and has 1 now" in caplog.text


def test_an_unharmed_run_goes_on_without_a_warning(folder, caplog):
    go_on(folder)
    assert not [record for record in caplog.records if record.levelname == "WARNING"]


def test_the_default_folder_depends_on_the_settings():
    def name(*settings):
        return RECIPES["stateful/digits"].run("smoke", settings=settings).folder.name

    assert name() == "stateful-digits-smoke-0"
    assert name("epochs=5").startswith("stateful-digits-smoke-0-")
    assert name("epochs=5", "width=8") == name("width=8", "epochs=5")
    some = [(), ("epochs=5",), ("epochs=6",), ("basis=Fourier(2)",), ("basis=Fourier(3)",)]
    assert len({name(*settings) for settings in some}) == len(some)
    assert all(len(name(*settings)) < 40 for settings in some)
