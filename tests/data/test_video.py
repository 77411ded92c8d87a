"""Clips: moving digits, BAIR's records, folders and arrays of one's own."""

import numpy as np
import pytest
import torch

import continua as ct
from continua.data import DATASETS, VideoDataset, catalogue, load
from data import layouts
from data.clips import everything

SMALL = {"n": 20, "test": 6, "frames": 6, "size": 16}


# -- moving digits -----------------------------------------------------------------------------


def test_moving_digits_are_clips():
    video = load("moving-digits", **SMALL)
    assert isinstance(video, VideoDataset)
    assert (len(video.train), len(video.validation), len(video.test)) == (18, 2, 6)
    assert (video.frames, video.shape) == (6, (1, 16, 16))
    clips = everything(video, "train")
    assert (clips.dtype, clips.shape) == (torch.uint8, (18, 6, 1, 16, 16))
    x = video.prepared(clips)
    assert x.dtype == torch.float32
    assert x.min() == 0
    assert 0.9 < x.max() <= 1
    assert (x.sum((2, 3, 4)) > 0).all()


@pytest.mark.parametrize("name", ["moving-mnist", "moving-digits"])
def test_sizes_are_those_of_the_catalogue(name, tmp_path):
    layouts.mnist(tmp_path)
    more = {"any_size": True} if name == "moving-mnist" else {}
    video = load(name, folder=tmp_path, **more)
    parts = (video.train, video.validation, video.test)
    assert tuple(map(len, parts)) == DATASETS[name].sizes
    assert video.shape == ((1, 64, 64) if name == "moving-mnist" else (1, 32, 32))
    assert video.frames == 20


def test_the_seed_decides_all_but_the_test_part():
    one, same, other = (load("moving-digits", seed=s, **SMALL) for s in (1, 1, 2))
    for part in ("train", "validation", "test"):
        assert torch.equal(everything(one, part), everything(same, part))
    assert not torch.equal(everything(one, "train"), everything(other, "train"))
    assert torch.equal(everything(one, "test"), everything(other, "test"))


def test_parts_do_not_depend_on_the_number_of_clips_of_others():
    one = load("moving-digits", **SMALL)
    more = load("moving-digits", **SMALL | {"n": 200})
    assert torch.equal(everything(one, "test"), everything(more, "test"))


def test_no_digit_is_in_two_parts():
    video = load("moving-digits", **SMALL | {"n": 2000, "test": 500})
    sets = [set(part.targets.flatten().tolist()) for part in (video.train, video.validation)]
    sets.append(set(video.test.targets.flatten().tolist()))
    assert not sets[0] & sets[1]
    assert not (sets[0] | sets[1]) & sets[2]
    assert max(sets[0]) < video.store.fresh


def test_training_clips_are_made_anew_from_training_digits():
    video = load("moving-digits", **SMALL)
    index = torch.arange(5)
    one, same = (
        video.clips("train", index, generator=torch.Generator().manual_seed(3)) for _ in "ab"
    )
    assert torch.equal(one, same)
    assert not torch.equal(one, video.clips("train", index))
    made = video.store.part(500, 0, video.store.fresh, torch.Generator().manual_seed(0))
    assert made.targets.max() < video.store.fresh


def test_a_digit_moves_on_a_line_and_is_mirrored_at_walls():
    video = load("moving-digits", **SMALL | {"digits": 1, "frames": 200, "size": 64})
    corners = video.train.inputs[:, :, 0].double()  # [N, T, 2]
    room = 64 - 28
    assert corners.min() == 0
    assert corners.max() == room
    step = corners.diff(dim=1)
    # Corners are rounded, so a step of 3.6 pixels is off by one at most, but for the mirror.
    speed = step.norm(dim=-1)
    away = ((corners > 4) & (corners < room - 4)).all(-1)[:, :-1]
    assert (speed[away] - 0.1 * room).abs().max() < 1.5
    # Unfolded, the way is a line: the same turn of direction only at walls.
    turned = (step[:, 1:].sign() * step[:, :-1].sign() < 0).any(-1)
    near = ((corners < 4) | (corners > room - 4)).any(-1)[:, 1:-1]
    assert not (turned & ~near).any()


def test_what_lies_above_is_brighter():
    video = load("moving-digits", **SMALL)
    store = video.store
    corners = torch.tensor([[[[0, 0], [2, 1]]]])
    frame = store.drawn(corners, torch.tensor([[3, 7]]))[0, 0, 0]
    expected = torch.zeros(16, 16, dtype=torch.uint8)
    expected[:7, :7] = store.images[3]
    expected[2:9, 1:8] = torch.maximum(expected[2:9, 1:8], store.images[7])
    assert torch.equal(frame, expected)


def test_random_bounces_stay_inside_and_cannot_be_foreseen():
    options = SMALL | {"frames": 60, "bounce": "random", "size": 64, "digits": 1}
    corners = load("moving-digits", **options).train.inputs[:, :, 0].double()
    assert corners.min() >= 0
    assert corners.max() <= 36
    speed = corners.diff(dim=1).norm(dim=-1)
    assert speed.std() > 0.5


@pytest.mark.parametrize(
    ("option", "match"),
    [
        ({"n": 0}, "n is a whole number of at least 1, not 0"),
        ({"frames": 1.5}, "frames is"),
        ({"size": 16, "digit_size": 17}, "digits of 17 pixels do not fit into frames of 16"),
        ({"speed": 2}, "speed is the way"),
        ({"bounce": "stick"}, "bounce is 'reflect' or 'random', not 'stick'"),
        ({"n": 3}, "leaves a part empty"),
        ({"colour": 1}, "has no option 'colour'"),
    ],
)
def test_options_that_cannot_work_are_refused(option, match):
    with pytest.raises(ct.ArgumentError, match=match):
        load("moving-digits", **SMALL | option)


def test_frames_in_a_row():
    video = load("moving-digits", **SMALL)
    whole = everything(video, "test")
    assert torch.equal(everything(video, "test", frames=4), whole[:, :4])
    with pytest.raises(ct.ArgumentError, match="has 6 frames, so 7 of them"):
        everything(video, "test", frames=7)
    with pytest.raises(ct.ShapeError, match=r"are \[B, T, 1, 16, 16\], not \[6, 16, 16\]"):
        video.prepared(whole[0, :, 0])


# -- BAIR --------------------------------------------------------------------------------------


@pytest.mark.parametrize("inside", ["", "softmotion30_44k"])
def test_bair_records_are_read(tmp_path, inside):
    clips = layouts.bair(tmp_path, train=(3, 2))
    video = load("bair", folder=tmp_path / inside, frames=2, validation=0.0)
    assert (len(video.train), len(video.test), video.shape) == (5, 1, (3, 64, 64))
    found = video.clips("train", torch.arange(5)).permute(0, 1, 3, 4, 2)
    assert np.array_equal(found.numpy(), clips["train"])
    found = video.clips("test", torch.tensor([0]), frames=1).permute(0, 1, 3, 4, 2)
    assert np.array_equal(found.numpy(), clips["test"][:, :1])
    assert video.clips("train", torch.arange(0)).shape == (0, 2, 3, 64, 64)
    held = load("bair", folder=tmp_path, frames=2, validation=0.4)
    assert (len(held.train), len(held.validation)) == (3, 2)
    assert {e.name: e.where for e in catalogue(tmp_path)}["bair"].endswith("train")


def test_bair_is_not_downloaded_unasked(tmp_path, monkeypatch):
    monkeypatch.setenv("CONTINUA_DATA", str(tmp_path))
    for folder in (None, tmp_path):
        with pytest.raises(ct.FileError, match="32 GB are not downloaded unasked: get http"):
            load("bair", folder=folder)
    assert {e.name: e.where for e in catalogue()}["bair"] == "not here"


@pytest.mark.parametrize(
    ("body", "match"),
    [
        (b"\x0a\x7fabc", "record 0 of .*tfrecords is no tf.train.Example"),
        (layouts.example({"0/image_aux1/encoded": b"abc"}), "has 3 bytes, not the 12,288"),
        (layouts.example({"x": b"abc"}), "has no '0/image_aux1/encoded': it has fewer than 2"),
    ],
)
def test_records_of_something_else_are_named(tmp_path, body, match):
    layouts.bair(tmp_path)
    path = tmp_path / "softmotion30_44k" / "train" / "traj_0_to_9.tfrecords"
    layouts.tfrecord(path, [body])
    with pytest.raises(ct.FileError, match=match):
        load("bair", folder=tmp_path, frames=2, validation=0.0)


def test_a_damaged_record_is_named_when_it_is_read(tmp_path):
    layouts.bair(tmp_path, train=(2,))
    path = tmp_path / "softmotion30_44k" / "train" / "traj_0_to_9.tfrecords"
    raw = bytearray(path.read_bytes())
    raw[-100] ^= 8
    path.write_bytes(raw)
    video = load("bair", folder=tmp_path, frames=2, validation=0.0)
    with pytest.raises(ct.FileError, match=r"traj_0_to_9.tfrecords is damaged: record 1 does not"):
        video.clips("train", torch.arange(2))
