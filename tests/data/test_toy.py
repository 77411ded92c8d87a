"""Points: seeded, balanced, of the shape their name promises."""

import sys

import pytest
import torch

import continua as ct
from continua.data import load

NAMES = ["moons", "circles", "annuli", "spirals", "checkerboard"]
every_set = pytest.mark.parametrize("name", NAMES)


def everything(data):
    parts = (data.train, data.validation, data.test)
    return torch.cat([p.inputs for p in parts]), torch.cat([p.targets for p in parts])


@every_set
def test_parts_types_and_balance(name):
    data = load(name)
    assert (len(data.train), len(data.validation), len(data.test)) == (614, 154, 256)
    assert data.train.inputs.dtype == torch.float32
    assert data.train.inputs.shape[1:] == (2,)
    assert data.train.targets.dtype == torch.int64
    assert data.classes == 2
    for part in (data.train, data.validation, data.test):
        assert torch.bincount(part.targets).tolist() == [len(part) // 2] * 2
    points, _ = everything(data)
    assert len(points.unique(dim=0)) == 1024, "no point is in two parts"
    assert data.prepared(points) is points


@every_set
def test_the_seed_decides(name):
    a, b, c = load(name, seed=1), load(name, seed=1), load(name, seed=2)
    assert torch.equal(a.train.inputs, b.train.inputs)
    assert not torch.equal(a.train.inputs, c.train.inputs)


@every_set
def test_nothing_random_is_disturbed(name):
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    load(name)
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize(("name", "outer"), [("circles", 1.0), ("annuli", 2.0)])
def test_radii(name, outer):
    points, labels = everything(load(name, noise=0))
    radius = points.norm(dim=1)
    torch.testing.assert_close(radius, outer / (1.0 + labels))
    points, labels = everything(load(name, n=4000, noise=0.1))
    off = points.norm(dim=1) - outer / (1.0 + labels)
    assert 0.08 < off.std() < 0.12


def test_spirals_are_two_arms_of_one_and_a_half_turns():
    points, labels = everything(load("spirals", noise=0))
    radius = points.norm(dim=1)
    assert 1.9 < radius.max() <= 2.0
    angle = 1.5 * torch.pi * radius + torch.pi * labels
    on_arm = torch.stack([angle.cos(), angle.sin()], 1) * radius[:, None]
    torch.testing.assert_close(points, on_arm, atol=1e-4, rtol=0)


def test_a_checkerboard_has_eight_squares_and_its_class_by_row():
    points, labels = everything(load("checkerboard", n=4000))
    assert points.abs().max() <= 2
    column, row = (points + 2).floor().long().clamp(max=3).unbind(1)
    assert ((column + row) % 2 == 0).all(), "all squares have one colour"
    assert torch.equal(row % 2, labels)
    counts = torch.bincount(4 * row + column, minlength=16)
    assert (counts > 0).sum() == 8
    assert counts[counts > 0].min() > 400
    inside = points + 2 - torch.stack([column, row], 1)
    torch.testing.assert_close(inside.mean(0), torch.full((2,), 0.5), atol=0.02, rtol=0)
    noisy, _ = everything(load("checkerboard", n=4000, noise=0.3))
    assert noisy.abs().max() > 2.2


def test_n_and_the_share_can_be_chosen():
    data = load("moons", n=100, validation=0)
    assert (len(data.train), len(data.validation), len(data.test)) == (75, 0, 25)


@pytest.mark.parametrize(
    ("option", "match"),
    [
        ({"n": 7}, "n is a whole number of at least 8, not 7"),
        ({"n": 10.0}, "n is a whole number"),
        ({"noise": -1}, "noise is a standard deviation from 0 on, not -1"),
        ({"noise": float("inf")}, "noise"),
        ({"noise": float("nan")}, "noise"),
        ({"seed": -1}, "seed is a whole number"),
        ({"validation": 1}, "validation is a share"),
        ({"colour": 1}, "moons has no option 'colour'; it has: n, noise"),
    ],
)
def test_options_that_cannot_work_are_refused(option, match):
    with pytest.raises(ct.ArgumentError, match=match):
        load("moons", **option)


def test_a_missing_scikit_learn_is_explained(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(ImportError, match=r'pip install "continua-torch\[recipes\]"'):
        load("moons")
    load("annuli")
