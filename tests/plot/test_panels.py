"""Losses side by side."""

import pytest

import continua as ct
from continua import plot

FALLS = {"K = 2": [1.0, 0.5, 0.25], "K = 4": [1.0, 0.7, 0.6]}


def test_panels_share_their_axes_and_have_a_legend_each():
    figure = plot.loss_panels({f"panel {i}": FALLS for i in range(5)}, columns=3, ylabel="error")
    axes = figure.axes
    assert [ax.get_title(loc="left") for ax in axes] == [f"panel {i}" for i in range(5)]
    assert {ax.get_yscale() for ax in axes} == {"log"}
    assert len({ax.get_ylim() for ax in axes}) == 1
    assert [ax.get_ylabel() for ax in axes] == ["error", "", "", "error", ""]
    # The third column has nothing below its first panel, so that one names the axis.
    assert [ax.get_xlabel() for ax in axes] == ["", "", "step", "step", "step"]
    for ax in axes:
        assert [text.get_text() for text in ax.get_legend().get_texts()] == list(FALLS)
        assert [list(line.get_ydata()) for line in ax.lines] == list(FALLS.values())


@pytest.mark.parametrize(
    ("panels", "more", "match"),
    [
        ({}, {}, "no panels"),
        ({"one": {}}, {}, "no histories"),
        ({"one": {"a": [1.0, 0.0]}}, {}, "'a' has 0"),
        ({"one": FALLS}, {"columns": 0}, "columns is a whole number of at least 1, not 0"),
        ({"one": FALLS}, {"columns": True}, "not True"),
    ],
)
def test_panels_that_cannot_be_drawn_are_refused(panels, more, match):
    with pytest.raises(ct.ArgumentError, match=match):
        plot.loss_panels(panels, **more)
