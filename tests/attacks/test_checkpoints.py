"""Checkpoints that were changed, by accident or on purpose."""

import json
import shutil
from collections import Counter
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import continua as ct
from attacks.crafted import with_checksums
from continua.train import Checkpoints, load_checkpoint
from train.subjects import Small, course, run

COURSE = course(epochs=2)
FILES = ["config.json", "model.safetensors", "training.json", "training.safetensors"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    run(folder, COURSE)
    return folder


@pytest.fixture
def folder(trained, tmp_path):
    return shutil.copytree(trained, tmp_path / "run")


def test_every_file_has_a_checksum(folder):
    last = Checkpoints(folder).last()
    named = {line.split()[1] for line in (last / "SHA256SUMS").read_text().splitlines()}
    assert named == {path.name for path in last.iterdir()} - {"SHA256SUMS"} == set(FILES)


@pytest.mark.parametrize("name", [*FILES, "SHA256SUMS"])
def test_a_flipped_digit_is_found_out(folder, name):
    path = Checkpoints(folder).last() / name
    content = bytearray(path.read_bytes())
    digits = [i for i, byte in enumerate(content) if chr(byte).isdigit()]
    content[digits[-1]] ^= 1
    path.write_bytes(content)
    with pytest.raises(ct.FileError, match=r"does not have the checksum"):
        run(folder, course(epochs=3))
    with pytest.raises(ct.FileError, match=r"does not have the checksum"):
        load_checkpoint(path.parent, factory=Small)


def test_what_is_loaded_is_what_was_checked(folder, monkeypatch):
    """Each file is read once: one that is changed after its check changes nothing."""
    counts, opened = Counter(), Path.open

    def count(path, *args, **options):
        counts[path.name] += 1
        return opened(path, *args, **options)

    monkeypatch.setattr(Path, "open", count)
    load_checkpoint(Checkpoints(folder).last(), factory=Small)
    assert {name: counts[name] for name in FILES} == dict.fromkeys(FILES, 1)


def test_lost_checksums_are_found_out(folder):
    last = Checkpoints(folder).last()
    (last / "SHA256SUMS").unlink()
    with pytest.raises(ct.FileError, match=r"does not have the checksum"):
        run(folder, course(epochs=3))


@pytest.mark.parametrize("name", ["../../elsewhere", "/tmp", "step-1/..", "", 3, None, "step-"])
@pytest.mark.parametrize("entry", ["last", "best"])
def test_an_index_points_nowhere_else(folder, tmp_path, name, entry):
    last = Checkpoints(folder).last()
    shutil.copytree(last, tmp_path / "elsewhere")
    index = {"last": [last.name], "best": last.name}
    index[entry] = [name] if entry == "last" else name
    (folder / "checkpoints" / "index.json").write_text(json.dumps(index))
    if (entry, name) == ("best", None):
        assert Checkpoints(folder).best() == last
        return
    with pytest.raises(ct.FileError, match=r"index\.json is not an index"):
        Checkpoints(folder).best()


@pytest.mark.parametrize("share", [0, 0.3, 0.9])
def test_cut_checksums_are_found_out(folder, share):
    path = Checkpoints(folder).last() / "SHA256SUMS"
    path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])
    with pytest.raises(ct.FileError, match="does not have the checksum"):
        load_checkpoint(path.parent, factory=Small)


def test_checksums_name_no_other_folder(folder):
    last = Checkpoints(folder).last()
    with (last / "SHA256SUMS").open("a") as file:
        file.write("0" * 64 + "  ../../../secret\n")
    assert load_checkpoint(last, factory=Small)  # what is not of a checkpoint is not read


CHANGES = {
    "no position": lambda s: s.pop("position"),
    "a step that is a text": lambda s: s["position"].update(step="3"),
    "an unknown entry": lambda s: s["position"].pop("epoch"),
    "no optimizer": lambda s: s.update(optimizer=[]),
    "no groups": lambda s: s["optimizer"].pop("param_groups"),
    "groups of another kind": lambda s: s["optimizer"].update(param_groups=[1]),
    "state that is a list": lambda s: s["optimizer"].update(state=[1]),
    "no generators": lambda s: s.update(python={}),
    "a generator of another kind": lambda s: s["python"].update(random=[3, [1], None]),
    "a negative key": lambda s: s["python"]["numpy"][1].__setitem__(0, -1),
    "an endless position": lambda s: s["python"]["numpy"].__setitem__(2, float("inf")),
    "a key that is too short": lambda s: s["python"]["numpy"][1].pop(),
    # NumPy does not check it, and reads memory that is not its own.
    "a position beyond the key": lambda s: s["python"]["numpy"].__setitem__(2, 10**8),
    "a position before the key": lambda s: s["python"]["numpy"].__setitem__(2, -1),
    "a batch before the first": lambda s: s["position"].update(batch=-(10**9)),
    "about a list": lambda s: s.update(about=[]),
    "training a list": lambda s: s["about"].update(training=[]),
    "format a text": lambda s: s.update(format="1"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_wrong_types_in_a_checkpoint(folder, change):
    last = Checkpoints(folder).last()
    state = json.loads((last / "training.json").read_text())
    CHANGES[change](state)
    (last / "training.json").write_text(json.dumps(state))
    with_checksums(last)
    with pytest.raises(ct.FileError, match=r"elsewhere to go on from"):
        run(folder, course(epochs=3))


def test_an_optimizer_of_another_shape(folder):
    last = Checkpoints(folder).last()
    tensors = load_file(last / "training.safetensors")
    name = next(n for n, t in tensors.items() if n.startswith("optimizer.") and t.numel() > 1)
    save_file(tensors | {name: tensors[name][:-1].contiguous()}, last / "training.safetensors")
    with_checksums(last)
    with pytest.raises(ct.FileError, match=r"of the optimizer has shape .*elsewhere to go on from"):
        run(folder, course(epochs=3))


def test_a_file_does_not_change_the_settings_of_an_optimizer(folder, tmp_path):
    other = shutil.copytree(folder, tmp_path / "other")
    last = Checkpoints(other).last()
    state = json.loads((last / "training.json").read_text())
    state["optimizer"]["param_groups"][0] |= {"momentum": "x", "lr": 1e9, "weight_decay": -5}
    (last / "training.json").write_text(json.dumps(state))
    with_checksums(last)
    outcomes = [run(each, course(epochs=3)) for each in (folder, other)]
    for one, two in zip(*(o.model.state_dict().values() for o in outcomes), strict=True):
        assert torch.equal(one, two)
