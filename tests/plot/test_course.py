"""The figure of a training."""

import math

import pytest

import continua as ct
from continua import plot


def lines(functions=(1, 1, 2), validation=True):
    found = []
    for i, k in enumerate(functions):
        line = {"epoch": i + 1, "functions": k, "train": {"loss": 1 / (i + 1), "accuracy": 0.5}}
        if validation:
            line["validation"] = {"loss": 2 / (i + 1), "accuracy": 0.4}
        found.append(line)
    return found


def test_a_panel_for_each_measure_and_a_line_where_the_basis_grew():
    figure = plot.course(lines())
    loss, accuracy = figure.axes
    assert (loss.get_ylabel(), accuracy.get_ylabel()) == ("loss", "accuracy")
    assert [line.get_label() for line in loss.lines[:2]] == ["train", "validation"]
    assert list(loss.lines[1].get_ydata()) == [2.0, 1.0, 2 / 3]
    assert [text.get_text() for text in loss.texts] == ["K = 2"]
    assert loss.lines[2].get_xdata()[0] == 2.5


def test_without_functions_of_depth_and_without_validation():
    figure = plot.course(lines((None, None), validation=False))
    assert [line.get_label() for line in figure.axes[0].lines] == ["train"]
    assert not figure.axes[0].texts


def test_an_epoch_without_a_measure_leaves_a_gap():
    found = lines()
    del found[1]["validation"]
    (loss, _) = plot.course(found).axes
    assert math.isnan(loss.lines[1].get_ydata()[1])


@pytest.mark.parametrize(
    ("epochs", "match"),
    [([], "at least one epoch"), ([{"epoch": 1, "functions": 1, "train": {}}], "no measure")],
)
def test_refusals(epochs, match):
    with pytest.raises(ct.ArgumentError, match=match):
        plot.course(epochs)
