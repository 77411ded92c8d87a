"""The digits: a seeded, stratified split that covers every image once."""

import sys

import pytest
import torch

import continua as ct
from continua.data import digits


def keys(images):
    return {bytes(image.mul(16).byte().flatten().tolist()) for image in images}


def test_shapes_types_and_range():
    split = digits()
    assert split.train_images.shape == (1347, 1, 8, 8)
    assert split.test_images.shape == (450, 1, 8, 8)
    assert split.train_images.dtype == split.test_images.dtype == torch.float32
    assert split.train_labels.dtype == split.test_labels.dtype == torch.int64
    both = torch.cat([split.train_images, split.test_images])
    assert (both.min(), both.max()) == (0, 1)
    assert split.classes == 10
    assert set(torch.cat([split.train_labels, split.test_labels]).tolist()) == set(range(10))


def test_the_parts_share_no_image_and_leave_none_out():
    from sklearn.datasets import load_digits

    split = digits(seed=3)
    train, test = keys(split.train_images), keys(split.test_images)
    assert not train & test
    everything = torch.from_numpy(load_digits().images).float().div(16).unsqueeze(1)
    assert train | test == keys(everything)
    assert len(split.train_labels) + len(split.test_labels) == len(everything) == 1797


def test_labels_stay_with_their_images():
    from sklearn.datasets import load_digits

    raw = load_digits()
    pixels = [bytes(image.astype("uint8").ravel()) for image in raw.images]
    label_of = dict(zip(pixels, raw.target, strict=True))
    split = digits(seed=1)
    for image, label in zip(split.test_images, split.test_labels, strict=True):
        assert label_of[bytes(image.mul(16).byte().flatten().tolist())] == label


def test_every_class_is_in_proportion():
    split = digits(seed=5)
    held_out = torch.bincount(split.test_labels)
    all_of_them = held_out + torch.bincount(split.train_labels)
    assert ((held_out - all_of_them / 4).abs() <= 1).all()


def test_the_seed_decides():
    a, b, c = digits(seed=1), digits(seed=1), digits(seed=2)
    assert torch.equal(a.test_images, b.test_images)
    assert torch.equal(a.train_labels, b.train_labels)
    assert not torch.equal(a.test_images, c.test_images)


def test_nothing_random_is_disturbed():
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    digits(seed=7)
    assert torch.equal(torch.rand(3), expected)


def test_the_share_can_be_chosen():
    assert len(digits(held_out=0.1).test_labels) == 180


@pytest.mark.parametrize("held_out", [0.0, 1.0, -0.1, 2, 0.0001, 0.9999])
def test_a_share_that_leaves_nothing_is_refused(held_out):
    with pytest.raises(ct.ArgumentError, match="held_out"):
        digits(held_out=held_out)


@pytest.mark.parametrize("seed", [-1, 1.5, 2**32, "1"])
def test_a_seed_that_is_none_is_refused(seed):
    with pytest.raises(ct.ArgumentError, match=r"seed is (a whole number|at most)"):
        digits(seed=seed)


def test_a_missing_scikit_learn_is_explained(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(ImportError, match=r'pip install "continua-torch\[recipes\]"'):
        digits()
