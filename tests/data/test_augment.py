"""Pad-crop and flip: what a loop over images would do, from one seed."""

import pytest
import torch
import torch.nn.functional as F

import continua as ct
from continua.data import augmented, flip, pad_crop


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def images(count=64, dtype=torch.uint8):
    return torch.randint(0, 256, (count, 3, 9, 7), generator=generator(9)).to(dtype)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
@pytest.mark.parametrize("pad", [1, 4])
def test_every_result_is_a_window_of_the_padded_image(dtype, pad):
    batch = images(dtype=dtype)
    moved = pad_crop(batch, pad, generator())
    assert moved.dtype == dtype
    assert moved.shape == batch.shape
    places = set()
    for image, result in zip(F.pad(batch, [pad] * 4), moved, strict=True):
        fits = [
            (i, j)
            for i in range(2 * pad + 1)
            for j in range(2 * pad + 1)
            if torch.equal(image[:, i : i + 9, j : j + 7], result)
        ]
        assert len(fits) == 1
        places.update(fits)
    assert len(places) > pad * 4, "the images move independently of each other"
    assert {i for i, _ in places} == {j for _, j in places} == set(range(2 * pad + 1))


def test_every_place_is_equally_likely():
    one = torch.zeros(9000, 1, 3, 3, dtype=torch.uint8)
    one[:, :, 1, 1] = 1
    counts = pad_crop(one, 1, generator()).sum(0)[0]
    assert counts.sum() == 9000
    assert ((counts - 1000).abs() < 150).all()  # five standard deviations


def test_flip_mirrors_about_half_and_leaves_the_rest():
    batch = images(1000)
    result = flip(batch, generator())
    mirrored = (result == batch.flip(3)).flatten(1).all(1)
    same = (result == batch).flatten(1).all(1)
    assert (mirrored ^ same).all()
    assert 420 < mirrored.sum() < 580


def test_augmented_is_both():
    batch = images()
    one = generator(3)
    assert torch.equal(augmented(batch, generator(3), 2), flip(pad_crop(batch, 2, one), one))
    assert torch.equal(augmented(batch, generator(3), 2, False), pad_crop(batch, 2, generator(3)))
    assert torch.equal(augmented(batch, generator(3), 0, False), batch)


def test_the_seed_decides_and_the_batch_is_left_alone():
    batch = images()
    before = batch.clone()
    a, b, c = (augmented(batch, generator(seed)) for seed in (1, 1, 2))
    assert torch.equal(a, b)
    assert not torch.equal(a, c)
    assert torch.equal(batch, before)


def test_an_empty_batch_stays_empty():
    assert augmented(images(0), generator()).shape == (0, 3, 9, 7)


@pytest.mark.parametrize("call", [lambda x, g: pad_crop(x, 1, g), flip, augmented])
def test_bad_arguments_are_refused(call):
    with pytest.raises(ct.ShapeError, match=r"\[B, C, H, W\], not \[3, 9, 7\]"):
        call(images()[0], generator())
    with pytest.raises(ct.ShapeError, match="not list"):
        call([1], generator())
    with pytest.raises(ct.ArgumentError, match=r"generator is a torch.Generator on the CPU, not 0"):
        call(images(), 0)


@pytest.mark.parametrize("pad", [-1, 1.5, True])
def test_a_pad_that_is_none_is_refused(pad):
    with pytest.raises(ct.ArgumentError, match="pad is a whole number"):
        pad_crop(images(), pad, generator())
