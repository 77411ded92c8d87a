"""Clips: moving digits, BAIR's records, folders and arrays of one's own."""

import sys

import numpy as np
import pytest
import torch
from PIL import Image

import continua as ct
from continua.data import DATASETS, VideoDataset, catalogue, load
from data import layouts

SMALL = {"n": 20, "test": 6, "frames": 6, "size": 16}


def everything(video, part, **options):
    index = torch.arange(len(getattr(video, part)))
    return video.clips(part, index, **options)


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
        ({"n": 0}, "n is a whole number from 1 on, not 0"),
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


# -- clips of one's own ------------------------------------------------------------------------


def frame(value, size=(8, 10), mode="L"):
    shape = size if mode == "L" else (*size, 3)
    return Image.fromarray(np.full(shape, value, dtype=np.uint8), mode="L" if mode == "L" else None)


def folders(root, clips=5, frames=3, size=(8, 10), mode="L", ending=".png"):
    for clip in range(clips):
        (root / f"clip{clip}").mkdir(parents=True)
        for t in range(frames):
            name = f"frame{9 + t}{ending}"  # 9, 10, 11: not in the order of letters
            frame(20 * clip + t, size, mode).save(root / f"clip{clip}" / name)


def test_folders_of_frames(tmp_path):
    folders(tmp_path)
    (tmp_path / "notes").mkdir()  # without frames: no clip
    video = load("frames", folder=tmp_path)
    assert (len(video.train), len(video.validation), len(video.test)) == (3, 1, 1)
    assert (video.frames, video.shape) == (3, (1, 8, 10))
    clips = torch.cat([everything(video, p) for p in ("train", "validation", "test")])
    first = clips[:, :, 0, 0, 0]
    assert sorted(first[:, 0].tolist()) == [0, 20, 40, 60, 80]
    assert torch.equal(first - first[:, :1], torch.tensor([[0, 1, 2]] * 5, dtype=torch.uint8))


def test_colour_and_other_sizes(tmp_path):
    folders(tmp_path, mode="RGB", ending=".jpg")
    video = load("frames", folder=tmp_path, size=4, frames=2)
    assert (video.frames, video.shape) == (2, (3, 4, 4))


def test_parts_that_the_folder_has(tmp_path):
    for i, part in enumerate(("train", "validation", "test")):
        folders(tmp_path / part, clips=i + 1)
    video = load("frames", folder=tmp_path)
    assert (len(video.train), len(video.validation), len(video.test)) == (1, 2, 3)


def test_arrays(tmp_path):
    random = np.random.default_rng(0)
    colour = random.integers(0, 256, (6, 4, 8, 8, 3), dtype=np.uint8)
    np.save(tmp_path / "clips.npy", colour)
    video = load("frames", folder=tmp_path)
    assert (video.frames, video.shape) == (4, (3, 8, 8))
    clips = torch.cat([everything(video, p) for p in ("train", "validation", "test")])
    total = clips.long().sum((1, 2, 3, 4)).tolist()
    assert sorted(total) == sorted(colour.astype(int).sum((1, 2, 3, 4)).tolist())
    np.save(tmp_path / "clips.npy", colour[..., 0] / 255)
    grey = load("frames", folder=tmp_path / "clips.npy", validation=0.0)
    assert grey.shape == (1, 8, 8)
    assert set(everything(grey, "train").unique().tolist()) <= set(np.unique(colour[..., 0]))


def test_clips_begin_anywhere_in_training(tmp_path):
    clips = np.arange(20, dtype=np.uint8)[None, :, None, None] * np.ones((5, 1, 8, 8), np.uint8)
    np.save(tmp_path / "clips.npy", clips)
    video = load("frames", folder=tmp_path)
    index = torch.zeros(50, dtype=torch.long)
    found = video.clips("train", index, frames=4, generator=torch.Generator().manual_seed(0))
    when = found[:, :, 0, 0, 0].long()
    assert (when.diff(dim=1) == 1).all()
    assert len(when[:, 0].unique()) > 10
    assert (video.clips("train", index, frames=4)[:, 0] == 0).all()


def test_one_of_several_arrays(tmp_path):
    some = np.zeros((5, 4, 8, 8), np.uint8)
    np.savez(tmp_path / "all.npz", a=some, b=np.zeros((5, 6, 4, 4), np.uint8), about=np.array("x"))
    with pytest.raises(ct.FileError, match=r"holds 'a' \[5, 4, 8, 8\], 'b' .*choose one with"):
        load("frames", folder=tmp_path)
    assert load("frames", folder=tmp_path, array="b").shape == (1, 4, 4)
    with pytest.raises(ct.ArgumentError, match="there is no array 'c'; there are 'a'"):
        load("frames", folder=tmp_path, array="c")
    with pytest.raises(ct.FileError, match=r"'about' in .* is <U1 of shape"):
        load("frames", folder=tmp_path, array="about")


@pytest.mark.parametrize(
    ("array", "match"),
    [
        (np.full((2, 3, 4, 4), 1.5), "has the pixel value 1.5; pixels of float64 go from 0 to 1"),
        (np.full((2, 3, 4, 4), -0.1), "has the pixel value -0.1"),
        (np.full((2, 3, 4, 4), np.nan), "has the pixel value nan"),
        (np.full((2, 3, 4, 4), 256), "has the pixel value 256; pixels of int64 go from 0 to 255"),
        (np.zeros((2, 3, 4, 4, 2), np.uint8), "has frames of 2 channels"),
        (np.zeros((2, 0, 4, 4), np.uint8), "is empty"),
        (np.zeros((4, 4), np.uint8), "numbers \\[N, T, H, W\\]"),
    ],
)
def test_arrays_that_are_no_clips_are_named(tmp_path, array, match):
    np.save(tmp_path / "clips.npy", array)
    with pytest.raises(ct.FileError, match=match):
        load("frames", folder=tmp_path)


def test_pickled_arrays_are_never_opened(tmp_path):
    np.save(tmp_path / "clips.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(ct.FileError, match="cannot be read as arrays: Object arrays"):
        load("frames", folder=tmp_path)
    (tmp_path / "clips.npy").write_bytes(b"nothing")
    with pytest.raises(ct.FileError, match="cannot be read as arrays"):
        load("frames", folder=tmp_path)


def test_frames_that_do_not_go_together_are_named(tmp_path):
    folders(tmp_path, clips=2)
    folders(tmp_path / "more", clips=1, size=(6, 6))
    (tmp_path / "more" / "clip0").rename(tmp_path / "clip7")
    with pytest.raises(ct.FileError, match=r"clip7 are 6x6 with 1 channel, those of .*clip0 are 8"):
        load("frames", folder=tmp_path)
    frame(0, (6, 6)).save(tmp_path / "clip0" / "frame99.png")
    with pytest.raises(ct.FileError, match=r"frame99.png is 6x6 .* frame9.png beside it is 8x10"):
        load("frames", folder=tmp_path)


def test_clips_that_are_too_short_are_named(tmp_path):
    folders(tmp_path)
    with pytest.raises(ct.FileError, match="clip0 has 3 frames, fewer than frames=4"):
        load("frames", folder=tmp_path, frames=4)


def test_a_damaged_image_is_named(tmp_path):
    folders(tmp_path)
    (tmp_path / "clip2" / "frame10.png").write_bytes(b"nothing")
    with pytest.raises(ct.FileError, match=r"frame10.png cannot be read as an image"):
        load("frames", folder=tmp_path)


def test_a_folder_without_clips_is_named(tmp_path):
    with pytest.raises(ct.ArgumentError, match="name their folder"):
        load("frames")
    with pytest.raises(ct.FileError, match="nowhere does not exist"):
        load("frames", folder=tmp_path / "nowhere")
    with pytest.raises(ct.FileError, match="holds no clips"):
        load("frames", folder=tmp_path)
    folders(tmp_path)
    np.save(tmp_path / "clips.npy", np.zeros((2, 3, 4, 4), np.uint8))
    with pytest.raises(ct.FileError, match=r"both folders of frames and arrays \(clips.npy\)"):
        load("frames", folder=tmp_path)
    with pytest.raises(ct.ArgumentError, match="held_out is a share"):
        load("frames", folder=tmp_path, held_out=1)


def test_a_missing_pillow_is_explained(tmp_path, monkeypatch):
    folders(tmp_path)
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(ct.ContinuaError, match=r"continua\[recipes\]'`, or give the clips as"):
        load("frames", folder=tmp_path)
