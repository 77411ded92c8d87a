"""The figure of accuracy over the order of a basis."""

import io

import pytest

import continua as ct
from continua import plot

LINES = {"T": {4: 0.8, 7: 0.85, 10: 0.9}, "B": {4: 0.7, 10: 0.72}}


def test_lines_and_levels():
    figure = plot.orders(LINES, {"ResNet": 0.86, "other": 0.861}, samples=500)
    figure.savefig(io.BytesIO(), format="png")
    (ax,) = figure.axes
    assert [text.get_text() for text in ax.texts] == ["B", "ResNet", "other", "T"]
    assert list(ax.get_xticks()) == [4, 7, 10]
    assert ax.get_ylabel() == "accuracy, %"
    level = [line for line in ax.lines if line.get_label() == "ResNet"]
    assert list(level[0].get_ydata()) == [86.0, 86.0]
    # names of close levels do not lie on each other
    places = [text.xyann[1] for text in ax.texts[1:3]]
    assert places[1] - places[0] > 5


def test_one_order():
    plot.orders({"T": {3: 0.5}}, samples=10).savefig(io.BytesIO(), format="png")


@pytest.mark.parametrize(
    ("lines", "references", "message"),
    [
        ({}, None, "at least one line"),
        ({"T": {}}, None, "at least one line"),
        ({"T": {1: 90.0}}, None, "not 90.0 of 'T'"),
        ({"T": {1: 0.9}}, {"T": 0.5}, "'T' is the name of a line"),
    ],
)
def test_bad_input(lines, references, message):
    with pytest.raises(ct.ArgumentError, match=message):
        plot.orders(lines, references, samples=10)
