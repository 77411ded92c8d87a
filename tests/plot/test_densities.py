"""Densities."""

import math

import matplotlib as mpl
import pytest
import torch

import continua as ct
from continua import plot
from plot.flows import PLANE, bell, legend, normal, offsets, some_points, title


def test_density_stands_beside_samples_and_data():
    extent = (-5, 5, -5, 5)
    x = some_points()
    figure = plot.density(normal().log_prob, x, extent=extent, data=2 * x, resolution=40)
    titles = ["density, integral 1.00", "12 samples", "12 data points"]
    assert [title(ax) for ax in figure.axes] == titles
    assert torch.equal(offsets(figure.axes[1])[-1], x.double())
    assert torch.equal(offsets(figure.axes[2])[-1], 2 * x.double())
    only = plot.density(normal().log_prob, extent=extent, data=x, resolution=40)
    assert [title(ax) for ax in only.axes] == ["density, integral 1.00", "12 data points"]


def test_what_reaches_beyond_the_figure_is_missing_from_the_integral():
    figure = plot.density(normal().log_prob, extent=(0, 5, -5, 5))
    assert title(figure.axes[0]) == "density, integral 0.50"


def test_a_flow_is_given_its_own_precision():
    seen = set()

    def log_prob(x):
        seen.add(x.dtype)
        return x[:, 0]

    plot.density(log_prob, some_points().double(), extent=PLANE, resolution=5)
    plot.density(log_prob, extent=PLANE, resolution=5)
    assert seen == {torch.float64, torch.float32}


def test_a_density_that_is_zero_there_is_an_empty_figure():
    figure = plot.density(lambda x: x[:, 0] - math.inf, extent=PLANE, resolution=5)
    assert title(figure.axes[0]) == "density, integral 0.00"


@pytest.mark.parametrize(
    ("log_prob", "more", "said"),
    [
        (lambda x: x, {}, r"25 points one number each, not \[25, 2\]"),
        (lambda x: x[:, 0] * math.nan, {}, "nan or infinite"),
        (lambda x: x[:, 0] + math.inf, {}, "nan or infinite"),
        (normal().log_prob, {"samples": torch.ones(5)}, r"samples are points .* not \[5\]"),
        (normal().log_prob, {"data": torch.ones(5, 3)}, r"data points are points .* not \[5, 3\]"),
        (normal().log_prob, {"extent": (0, 0, 0, 1)}, "left < right"),
    ],
)
def test_densities_that_cannot_be_drawn_are_named(log_prob, more, said):
    with pytest.raises(ct.ArgumentError, match=said):
        plot.density(log_prob, **{"extent": PLANE, "resolution": 5, **more})


def test_densities_have_lines_and_bars_of_one_colour():
    samples = torch.randn(2000, 1, generator=torch.Generator().manual_seed(0))
    figure = plot.densities({"a": bell(), "b": bell(1.0)}, {"b": samples})
    (ax,) = figure.axes
    assert legend(figure) == ["a", "b"]
    assert [len(line.get_xdata()) for line in ax.lines] == [81, 81]
    (bars,) = ax.patches
    assert mpl.colors.to_hex(bars.get_facecolor()) == ax.lines[1].get_color().lower()
    heights, edges, _ = bars.get_data()
    inside = float((samples.abs() <= 4).double().mean())
    assert float((heights * (edges[1:] - edges[:-1])).sum()) == pytest.approx(inside)


@pytest.mark.parametrize(
    ("curves", "samples", "said"),
    [
        ({}, None, "no curves"),
        ({"a": ([0.0, 1.0], [1.0])}, None, "'a' has 2 places and 1 densities"),
        ({"a": ([0.0], [1.0])}, None, "at least 2"),
        ({"a": ([1.0, 0.0], [1.0, 1.0])}, None, "increase; sort them"),
        ({"a": ([0.0, 1.0], [-1.0, 1.0])}, None, "without the logarithm"),
        ({"a": ([0.0, 1.0], [math.nan, 1.0])}, None, "finite"),
        ({"a": bell()}, {"b": torch.ones(3)}, "samples of 'b', which is none of a"),
        ({"a": bell()}, {"a": torch.ones(3, 2)}, r"numbers in a row, \[B\], not \[3, 2\]"),
        ({"a": bell()}, {"a": torch.tensor([math.nan])}, "not finite"),
    ],
)
def test_curves_that_cannot_be_drawn_are_named(curves, samples, said):
    with pytest.raises(ct.ArgumentError, match=said):
        plot.densities(curves, samples)
