"""Cuts: exact in size, in proportion, seeded, disjoint and complete."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import continua as ct
from continua.data import Dataset, Part
from continua.data._split import cut


def part(count, classes, seed=0):
    labels = torch.randint(0, classes, (count,), generator=torch.Generator().manual_seed(seed))
    return Part(torch.arange(count), labels)


@given(
    count=st.integers(10, 300),
    classes=st.integers(1, 8),
    share=st.floats(0.1, 0.9),
    seed=st.integers(0, 2**32 - 1),
)
def test_a_cut_is_exact_complete_and_in_proportion(count, classes, share, seed):
    whole = part(count, classes, seed % 7)
    rest, taken = cut(whole, share, seed)
    assert len(taken) == round(share * count)
    assert sorted([*rest.inputs.tolist(), *taken.inputs.tolist()]) == list(range(count))
    for piece in (rest, taken):
        assert torch.equal(whole.targets[piece.inputs], piece.targets)
        assert piece.inputs.tolist() == sorted(piece.inputs.tolist())
    expected = torch.bincount(whole.targets, minlength=classes) * len(taken) / count
    found = torch.bincount(taken.targets, minlength=classes)
    assert ((found - expected).abs() <= 1 + 1e-4).all()


def test_the_seed_decides_and_nothing_else_is_disturbed():
    whole = part(100, 3)
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    a, b, c = (cut(whole, 0.3, seed)[1].inputs for seed in (1, 1, 2))
    assert torch.equal(torch.rand(3), expected)
    assert torch.equal(a, b)
    assert not torch.equal(a, c)


def test_a_share_of_zero_takes_nothing():
    rest, taken = cut(part(10, 2), 0, 0)
    assert len(rest) == 10
    assert len(taken) == 0


def test_every_item_is_taken_by_some_seed():
    whole = part(40, 4)
    taken = torch.cat([cut(whole, 0.25, seed)[1].inputs for seed in range(60)])
    assert set(taken.tolist()) == set(range(40))


@pytest.mark.parametrize("share", [-0.1, 1.0, 2, "a", True, float("nan")])
def test_a_share_that_is_none_is_refused(share):
    with pytest.raises(ct.ArgumentError, match="a share from 0"):
        cut(part(10, 2), share, 0)


@pytest.mark.parametrize("share", [0.01, 0.99])
def test_a_share_that_leaves_a_part_empty_is_refused(share):
    with pytest.raises(ct.ArgumentError, match="leaves a part empty"):
        cut(part(10, 2), share, 0)


def test_parts_need_as_many_targets_as_inputs():
    with pytest.raises(ct.ShapeError, match="3 inputs cannot have 2 targets"):
        Part(torch.zeros(3), torch.zeros(2))


def test_prepared_normalises_images_and_leaves_them_alone():
    images = torch.randint(0, 256, (4, 2, 3, 3), dtype=torch.uint8)
    some = Part(images, torch.zeros(4))
    data = Dataset("x", some, some, some, 1, mean=(0.5, 0.1), std=(0.2, 0.4))
    before = images.clone()
    mean, std = torch.tensor([0.5, 0.1]).view(2, 1, 1), torch.tensor([0.2, 0.4]).view(2, 1, 1)
    expected = (images.float() / 255 - mean) / std
    torch.testing.assert_close(data.prepared(images), expected)
    as_float = images.float()
    torch.testing.assert_close(data.prepared(as_float), expected)
    assert torch.equal(as_float, before.float())
    assert torch.equal(images, before)
    with pytest.raises(ct.ShapeError, match=r"a batch of x is \[B, 2, H, W\], not \[4, 3, 3, 3\]"):
        data.prepared(torch.zeros(4, 3, 3, 3))


def test_prepared_leaves_what_is_no_image():
    tokens = torch.zeros(4, 5, dtype=torch.int64)
    some = Part(tokens, tokens)
    assert Dataset("x", some, some, some, 1).prepared(tokens) is tokens


def test_what_is_shown_is_short():
    some = Part(torch.zeros(4, 5), torch.zeros(4, 5, dtype=torch.int64))
    assert repr(some) == "Part(inputs=float32[4, 5], targets=int64[4, 5])"
