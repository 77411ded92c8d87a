"""Checkpoints: which are kept, and what happens to damaged ones."""

import errno
import json
import os
from pathlib import Path

import pytest
import torch

import continua as ct
from continua.train import Checkpoints, Interrupted, Position, _files
from train.subjects import Small, assert_same, course, metrics, run, small


def folders(run: Path) -> list[str]:
    return sorted(p.name for p in (run / "checkpoints").iterdir() if p.is_dir())


def interrupt(count: int):
    """A watcher that presses Ctrl-C after so many calls."""
    left = [count]

    def watch(now):
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), 2)

    return watch


COURSE = course(epochs=3, refine_epochs=(1,))


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    folder = tmp_path_factory.mktemp("unbroken")
    run(folder, COURSE)
    return folder


@pytest.fixture
def stopped(tmp_path):
    """A run that stands in its second epoch, with one checkpoint before the last."""
    with pytest.raises(Interrupted):
        run(tmp_path, COURSE, watch=interrupt(7))
    assert folders(tmp_path) == ["step-00000004", "step-00000006"]
    return tmp_path


@pytest.mark.parametrize(
    ("name", "how"),
    [
        ("model.safetensors", "cut"),
        ("config.json", "cut"),
        ("training.safetensors", "cut"),
        ("training.json", "cut"),
        ("model.safetensors", "gone"),
        ("training.safetensors", "gone"),
    ],
)
def test_damaged_checkpoint(stopped, unbroken, name, how):
    folder = stopped / "checkpoints" / "step-00000006"
    path = folder / name
    if how == "cut":
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    else:
        path.unlink()
    before = {p: p.read_bytes() for p in stopped.rglob("*") if p.is_file()}
    with pytest.raises(ct.FileError) as caught:
        run(stopped, COURSE)
    message = str(caught.value)
    assert name in message
    assert f"move {folder} elsewhere to go on from the checkpoint before it" in message
    assert "\n" not in message
    assert {p: p.read_bytes() for p in stopped.rglob("*") if p.is_file()} == before
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()
    run(stopped, COURSE)
    assert_same(stopped, unbroken)


def test_changed_tensors_are_found_out(stopped):
    path = stopped / "checkpoints" / "step-00000006" / "training.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(ct.FileError, match=r"training.safetensors does not have the checksum"):
        run(stopped, COURSE)


def test_newer_format(stopped):
    path = stopped / "checkpoints" / "step-00000006" / "training.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format": 99}))
    with pytest.raises(ct.FileError, match="format 99, newer than 1"):
        run(stopped, COURSE)


@pytest.mark.parametrize("content", ['{"last": ["st', "[]"])
def test_damaged_index(stopped, unbroken, content):
    path = stopped / "checkpoints" / "index.json"
    path.write_text(content)
    with pytest.raises(ct.FileError, match=r"index.json .*remove it"):
        run(stopped, COURSE)
    path.unlink()
    assert Checkpoints(stopped).last().name == "step-00000006"
    run(stopped, COURSE)
    assert_same(stopped, unbroken)


def test_index_made_anew_knows_the_best(tmp_path):
    outcome = run(tmp_path, course(epochs=3, learning_rate=1e-9))  # the first stays the best
    checkpoints = Checkpoints(tmp_path)
    best = checkpoints.best()
    assert best.name == "step-00000004"
    (tmp_path / "checkpoints" / "index.json").unlink()
    assert checkpoints.best() == best
    again = run(tmp_path, course(epochs=3, learning_rate=1e-9))
    for name, value in outcome.model.state_dict().items():
        assert torch.equal(value, again.model.state_dict()[name]), name


def test_all_checkpoints_gone_starts_anew(stopped, unbroken):
    import shutil

    for name in folders(stopped):
        shutil.rmtree(stopped / "checkpoints" / name)
    run(stopped, COURSE)
    assert_same(stopped, unbroken)


def test_at_most_the_last_two_and_the_best(tmp_path):
    seen = []

    def watch(now):
        seen.append(len(folders(tmp_path)))

    run(tmp_path, course(epochs=4, learning_rate=1e-9, checkpoint_minutes=1e-9), watch=watch)
    assert max(seen) <= 3
    assert folders(tmp_path) == ["step-00000004", "step-00000015", "step-00000016"]
    assert not list(tmp_path.rglob(".*"))


@pytest.mark.parametrize("finished", [False, True])
def test_an_old_checkpoint_that_could_not_be_removed_goes_when_the_run_is_opened(
    stopped, unbroken, finished
):
    if finished:
        run(stopped, COURSE)
    (stopped / "checkpoints" / "step-00000002").mkdir()  # the last of its files is gone already
    run(stopped, COURSE)
    assert folders(stopped) == folders(unbroken)
    assert_same(stopped, unbroken)


def test_full_disk(stopped, unbroken, monkeypatch):
    before = folders(stopped)
    real = os.fsync

    def full(handle):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def later(now):
        monkeypatch.setattr(os, "fsync", full)

    with pytest.raises(ct.FileError, match="No space left on device"):
        run(stopped, COURSE, watch=later)
    assert folders(stopped) == before
    assert not list(stopped.rglob(".*"))
    monkeypatch.setattr(os, "fsync", real)
    run(stopped, COURSE)
    assert_same(stopped, unbroken)


@pytest.mark.parametrize("call", [1, 2, 3, 4, 5])
def test_disk_that_fills_up_inside_a_checkpoint(tmp_path, monkeypatch, call):
    checkpoints, model = Checkpoints(tmp_path), small()
    optimizer = torch.optim.Adam(model.parameters())
    checkpoints.write(model, optimizer, Position(step=1), None, best=True)
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    count, real = [0], os.fsync

    def full(handle):
        count[0] += 1
        if count[0] == call:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(handle)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ct.FileError) as caught:
        checkpoints.write(model, optimizer, Position(step=2), None, best=False)
    assert "No space left on device; the one before it is untouched" in str(caught.value)
    assert "step-00000002:" in str(caught.value)
    assert all(path.read_bytes() == content for path, content in before.items())
    assert checkpoints.last().name == "step-00000001"
    assert not list(tmp_path.rglob(".*"))


def test_folder_that_cannot_be_written(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    with pytest.raises(ct.FileError, match="cannot write to the folder"):
        run(tmp_path / "file")

    def read_only(*arguments, **options):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(_files.tempfile, "TemporaryFile", read_only)
    with pytest.raises(ct.FileError, match=r"Read-only file system; choose another"):
        run(tmp_path / "new")


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() == 0,
    reason="this user may write to read-only folders",
)
def test_read_only_folder(tmp_path):
    tmp_path.chmod(0o555)
    with pytest.raises(ct.FileError, match="cannot write to the folder"):
        run(tmp_path)


def test_model_that_cannot_be_saved_is_refused_before_any_work(tmp_path):
    from continua.train import fit
    from train.subjects import task

    with pytest.raises(ct.ArgumentError, match=r"continua.build"):
        fit(Small, task(), course(), tmp_path, device="cpu", watch=pytest.fail)
    assert metrics(tmp_path) == []
