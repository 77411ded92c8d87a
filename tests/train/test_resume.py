"""A run that is killed at any moment goes on to the same bits."""

import json
import signal
import sys
from pathlib import Path

import pytest

from train.forks import COURSES, Forks
from train.subjects import assert_same, metrics

KILLED = -signal.SIGKILL

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="a process with torch in it can be forked on Linux only"
)


@pytest.fixture(scope="module")
def forks():
    process = Forks()
    yield process
    process.close()


@pytest.fixture(scope="module")
def unbroken(forks, tmp_path_factory):
    """The folder of a run of each course that nothing stopped."""
    folders: dict[str, Path] = {}

    def of(course: str) -> Path:
        if course not in folders:
            folders[course] = tmp_path_factory.mktemp(course) / "run"
            assert forks.fit(folders[course], course) == 0
        return folders[course]

    return of


POINTS = [
    *[("sgd", "batch", number) for number in (0, 3, 7, 12)],
    *[("sgd", "replace", number) for number in (0, 1, 22, 43, 64)],
    *[("sgd", "replaced", number) for number in (4, 25, 46)],
    *[("sgd", "sync", number) for number in (2, 31)],
    *[("sgd", "tidied", number) for number in (10, 34)],
    *[("sgd", point, 0) for point in ("refined", "projected", "forgotten")],
    *[("sgd", "forgotten", 1)],
    *[("adamw", "batch", number) for number in (6, 10)],
    *[("adamw", "replaced", number) for number in (23,)],
    *[("adamw", "refined", number) for number in (0, 1)],
    *[("adam", "batch", number) for number in (6,)],
    *[("adam", "refined", 0), ("adam", "forgotten", 0)],
    *[("fp16", "batch", 5)],
    *[("elastic", "batch", number) for number in (5, 10, 14)],
    *[("elastic", "refined", 1)],
    *[("pictures", "batch", number) for number in (1, 5)],
    *[("pictures", "refined", 0)],
]


def names(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


@pytest.mark.parametrize(("course", "point", "number"), POINTS)
def test_killed_run_goes_on_to_the_same_bits(forks, unbroken, tmp_path, course, point, number):
    assert forks.fit(tmp_path, course, point, number) == KILLED
    assert forks.fit(tmp_path, course) == 0
    assert_same(tmp_path, unbroken(course))
    assert names(tmp_path) == names(unbroken(course))


@pytest.mark.parametrize("course", COURSES)
def test_run_killed_again_and_again(forks, unbroken, tmp_path, course):
    """The first batch after going on is done, the one after it is not."""
    number, times = (1, 0) if COURSES[course].get("checkpoint_minutes") else (5, 0)
    while (code := forks.fit(tmp_path, course, "batch", number)) == KILLED:
        times += 1
        assert times < 30
    assert code == 0
    assert times >= 2
    assert_same(tmp_path, unbroken(course))


def test_run_that_checkpoints_after_every_batch_loses_at_most_one(forks, tmp_path):
    forks.fit(tmp_path, "sgd", "batch", 6)
    index = json.loads((tmp_path / "checkpoints" / "index.json").read_text())
    # Seven times watched: once of them at the end of the epoch.
    assert index["last"] == ["step-00000005", "step-00000004"]
    assert [line["epoch"] for line in metrics(tmp_path)] == [1]


def test_unbroken_runs_are_the_same(forks, unbroken, tmp_path):
    assert forks.fit(tmp_path, "sgd") == 0
    assert_same(tmp_path, unbroken("sgd"))
    assert [line["functions"] for line in metrics(tmp_path)] == [1, 2, 2, 1]
