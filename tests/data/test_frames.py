"""Clips of one's own: folders of frames, and arrays."""

import sys

import numpy as np
import pytest
import torch
from PIL import Image

import continua as ct
from continua.data import load
from data.clips import everything


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
    with pytest.raises(ct.ContinuaError, match=r"which is not installed"):
        load("frames", folder=tmp_path)
