"""Clips as rows of frames, and as they move."""

import io

import matplotlib as mpl
import numpy as np
import pytest
import torch
from PIL import Image

import continua as ct
from continua import plot


def clip(frames=12, channels=1, height=8, width=8, value=None):
    if value is not None:
        return torch.full((frames, channels, height, width), value)
    generator = torch.Generator().manual_seed(0)
    return torch.rand(frames, channels, height, width, generator=generator)


def texts(figure):
    return [text.get_text() for text in figure.axes[0].texts]


def test_rows_and_frames_stand_where_they_belong():
    rows = {"truth": clip(), "reconstruction": clip(11), "future": clip(10)}
    figure = plot.strips(rows, given=2, title="a model")
    ax = figure.axes[0]
    assert len(ax.images) == 12 + 11 + 10
    assert [t.get_text() for t in ax.get_yticklabels()] == list(rows)
    assert [t.get_text() for t in ax.get_xticklabels()] == [str(i + 1) for i in range(12)]
    assert texts(figure) == ["given"]
    assert figure.get_suptitle() == "a model"
    # The first frame of the shortest stands in the third column.
    left = min(image.get_extent()[0] for image in ax.images[-10:])
    assert 2 < left < 2.1
    assert (ax.images[23].get_array() == rows["future"][0, 0].numpy()).all()
    (outline,) = ax.patches
    assert outline.get_width() == 2


def test_long_clips_are_thinned_and_end_at_the_end():
    figure = plot.strips({"a": clip(50)})
    shown = [int(t.get_text()) for t in figure.axes[0].get_xticklabels()]
    assert len(shown) <= 20
    assert (shown[0], shown[-1]) == (1, 50)
    assert texts(figure) == []


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("given", [0, 2])
def test_nothing_is_cut_off_and_nothing_global_changes(channels, given):
    before = dict(mpl.rcParams)
    figure = plot.strips(
        {
            "truth": clip(4, channels, 8, 12),
            "a name that is far too long": clip(3, channels, 8, 12),
        },
        given=given,
    )
    buffer = io.BytesIO()
    figure.savefig(buffer)
    pixels = np.asarray(Image.open(buffer).convert("L"))
    for edge in (pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1]):
        assert (edge > 250).all()
    assert dict(mpl.rcParams) == before


def test_clips_play(tmp_path):
    rows = {"truth": clip(5), "future": clip(5, value=1.0)}
    path = plot.play(rows, tmp_path / "clip.gif", given=2, fps=10)
    with Image.open(path) as gif:
        assert gif.n_frames >= 5
        pictures = []
        for n in range(5):
            gif.seek(n)
            pictures.append(np.asarray(gif.convert("RGB"), dtype=int))
    orange = [((p - np.array([0xD5, 0x5E, 0])) ** 2).sum(-1).min() < 500 for p in pictures]
    assert orange == [True, True, False, False, False]
    assert [path.name for path in tmp_path.iterdir()] == ["clip.gif"]


@pytest.mark.parametrize(
    ("rows", "options", "match"),
    [
        ({}, {}, "one to 8 clips"),
        ({"a": clip()[0]}, {}, r"'a' is \[1, 8, 8\]"),
        ({"a": clip(channels=2)}, {}, r"1 or 3 channels"),
        ({"a": clip(0)}, {}, r"'a' is \[0, "),
        ({"a": clip(), "b": clip(height=4)}, {}, r"frames of 'b' are \[1, 4, 8\], others are"),
        ({"a": clip()}, {"given": 13}, "the number of frames given is at most 12, not 13"),
    ],
)
def test_what_cannot_be_shown(rows, options, match, tmp_path):
    with pytest.raises(ct.ArgumentError, match=match):
        plot.strips(rows, **options)
    with pytest.raises(ct.ArgumentError, match=match):
        plot.play(rows, tmp_path / "a.gif", **options)
    assert not list(tmp_path.iterdir())


def test_what_cannot_play(tmp_path):
    with pytest.raises(ct.ArgumentError, match=r"as a .gif, not as 'a.mp4'"):
        plot.play({"a": clip()}, tmp_path / "a.mp4")
    with pytest.raises(ct.ArgumentError, match="fps is a whole number of at least 1, not 0"):
        plot.play({"a": clip()}, tmp_path / "a.gif", fps=0)
    with pytest.raises(ct.ShapeError, match="'b' has 11 frames and another has 12"):
        plot.play({"a": clip(), "b": clip(11)}, tmp_path / "a.gif")
    with pytest.raises(ct.FileError, match="nowhere does not exist"):
        plot.play({"a": clip()}, tmp_path / "nowhere" / "a.gif")
