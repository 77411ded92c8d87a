"""Functions: decisions over the plane, weights over depth."""

import pytest
import torch
from torch import nn

import continua as ct
from continua import plot
from plot.flows import PLANE, some_labels, some_points, title

# -- decisions --------------------------------------------------------------------------------


class First(nn.Module):
    """The first coordinate as the score, in the given shape."""

    def __init__(self, shape):
        super().__init__()
        self.shape = shape

    def forward(self, x):
        return {"B": x[:, 0], "B1": x[:, :1], "B2": torch.stack([-x[:, 0], x[:, 0]], 1) / 2}[
            self.shape
        ]


@pytest.mark.parametrize("shape", ["B", "B1", "B2"])
def test_the_map_has_the_colours_of_the_classes(shape):
    x = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [2.0, 1.0], [0.5, 0.5]])
    figure = plot.decision(First(shape), x, torch.tensor([1, 0, 1, 0]), extent=PLANE, resolution=40)
    (ax,) = figure.axes
    assert title(ax) == "accuracy 75.0 % of 4"
    picture = ax.images[0].get_array()
    left, right = picture[20, 0], picture[20, -1]
    assert left[0] > left[2]  # reddish, class 0
    assert right[0] < right[2]  # bluish, class 1
    # Paler near the boundary.
    assert picture[20, 21].sum() > picture[20, -1].sum()
    assert picture.shape == (40, 40, 3)
    (boundary,) = [c for c in ax.collections if hasattr(c, "levels")]
    assert abs(boundary.get_paths()[0].vertices[:, 0]).max() < 1e-6


def test_the_threshold_moves_the_boundary_and_the_accuracy():
    x = torch.tensor([[1.0, 0.0], [-1.0, 0.0]])
    figure = plot.decision(First("B"), x, torch.tensor([0, 0]), threshold=1.5, extent=PLANE)
    assert title(figure.axes[0]) == "accuracy 100.0 % of 2"
    (boundary,) = [c for c in figure.axes[0].collections if hasattr(c, "levels")]
    assert boundary.get_paths()[0].vertices[:, 0] == pytest.approx(1.5)


def test_a_class_that_wins_nowhere_has_no_boundary():
    figure = plot.decision(First("B"), some_points(), some_labels(), threshold=99.0, resolution=10)
    assert not [c for c in figure.axes[0].collections if hasattr(c, "levels")]


@pytest.mark.parametrize(
    ("model", "x", "labels", "more", "said"),
    [
        (First("B"), torch.ones(4, 1), some_labels(4), {}, r"data are points of shape \[B, 2\]"),
        (First("B"), some_points(), some_labels(4), {}, "12 samples need labels"),
        (First("B"), some_points(), some_labels(classes=3), {}, "classes 0 to 1 apart, .* have 2"),
        (First("B"), some_points(), 2 * some_labels() - 1, {}, "the labels have -1"),
        (nn.Unflatten(1, (2, 1)), some_points(), some_labels(), {}, r"not \[12, 2, 1\]"),
        (First("B"), some_points(), some_labels(), {"resolution": 1}, "at least 2, not 1"),
    ],
)
def test_decisions_that_cannot_be_drawn_are_named(model, x, labels, more, said):
    with pytest.raises(ct.ArgumentError, match=said):
        plot.decision(model, x, labels, **more)


# -- functions of depth -----------------------------------------------------------------------


def a_block(basis, span=(0.0, 1.0)):
    torch.manual_seed(0)
    return ct.ODEBlock(nn.Linear(3, 3), basis, ct.Euler(steps=4), span=span, init="independent")


def test_functions_of_depth_shows_the_basis_and_the_weight():
    block = a_block(ct.Fourier(2), span=(0.0, 2.0))
    figure = plot.functions_of_depth(block, count=4)
    left, right = figure.axes
    assert len(left.lines) == 5
    assert "Fourier(2" in title(left)
    assert title(right).startswith("weight:")
    assert len(right.lines) == 4
    for line in right.lines:
        i, j = map(int, line.get_label().strip("[]").split(", "))
        for s, value in list(zip(*line.get_data(), strict=True))[::40]:
            assert value == pytest.approx(block.at(float(s)).weight[i, j].item(), abs=1e-5)
    s, values = left.lines[1].get_data()
    assert len(s) >= 200
    assert (s[0], s[-1]) == (0, 2)
    expected = [float(block.expansion.weights["weight"](torch.tensor(u / 2))[1]) for u in s]
    assert values == pytest.approx(expected, abs=1e-5)


def test_jumps_of_functions_are_upright():
    left, right = plot.functions_of_depth(a_block(ct.PiecewiseConstant(2)), count=1).axes
    assert list(left.lines[0].get_xdata()) == [0, 0.5, 0.5, 1]
    assert list(left.lines[0].get_ydata()) == [1, 1, 0, 0]
    values = right.lines[0].get_ydata()
    assert values[0] == values[1] != values[2] == values[3]


@pytest.mark.parametrize(("size", "named"), [(1, True), (6, True), (7, False), (40, False)])
def test_many_basis_functions_have_a_scale_instead_of_names(size, named):
    figure = plot.functions_of_depth(a_block(ct.PiecewiseConstant(size)))
    left = figure.axes[0]
    assert len(left.lines) == size
    assert (left.get_legend() is not None) == named
    assert len(left.child_axes) == (not named)


def test_a_weight_that_varies_is_chosen_before_a_larger_one():
    block = ct.ODEBlock(nn.Linear(3, 3), {"bias": ct.Fourier(1), "*": ct.Constant()})
    assert title(plot.functions_of_depth(block).axes[1]).startswith("bias")
    assert title(plot.functions_of_depth(block, "weight").axes[1]).startswith("weight")
    still = ct.ODEBlock(nn.Linear(3, 3))
    assert title(plot.functions_of_depth(still).axes[1]).startswith("weight")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"tensor": "wait"}, "no parameter 'wait'; it has 'weight'"),
        ({"count": 0}, "count is a whole number of at least 1, not 0"),
        ({"points": 0}, "points is a whole number of at least 1, not 0"),
    ],
)
def test_functions_that_are_not_there_are_named(arguments, said):
    with pytest.raises(ct.ArgumentError, match=said):
        plot.functions_of_depth(a_block(ct.Fourier(1)), **arguments)
