"""The figures of memory: what is on them."""

import io
import itertools

import pytest

import continua as ct
from continua import plot
from continua.measure import MemoryReport, MemoryUse
from continua.plot._memory import apart

ROWS = (
    MemoryUse(ct.Backprop(), saved=8_000_000, peak=9_000_000),
    MemoryUse(ct.Checkpoint("sqrt"), saved=500_000, peak=2_000_000),
    MemoryUse(ct.Reversible(), refusal="Reversible() needs ReversibleHeun, not Euler(steps=1)"),
)
REPORT = MemoryReport(900_000, 100_000, 900_000, 1_800_000, "Adam", ROWS)


def drawn(figure):
    figure.savefig(io.BytesIO(), format="png")  # every label must have a place
    return figure.axes[0]


def test_bars_add_up():
    ax = drawn(plot.memory(REPORT))
    assert ax.get_xlabel() == "MB"
    assert [text.get_text() for text in ax.get_yticklabels()] == [
        "Backprop",
        "Checkpoint sqrt",
        "Reversible",
    ]
    widths = [[bar.get_width() for bar in part] for part in ax.containers]
    assert list(itertools.chain(*widths)) == pytest.approx([1.0, 1.0, 1.8, 1.8, 8.0, 0.5, 1.0, 1.5])
    ends = [bar.get_x() + bar.get_width() for bar in ax.containers[-1]]
    assert ends == pytest.approx([11.8, 4.8])
    words = [text.get_text() for text in ax.texts]
    assert words[:2] == ["8.00 MB saved, 9.00 MB peak", "500 kB saved, 2.00 MB peak"]
    assert words[2].startswith("not possible: Reversible() needs")


@pytest.mark.parametrize(
    "rows", [ROWS[2:], (MemoryUse(None, 10, 10, 20),)], ids=["nothing possible", "a plain module"]
)
def test_single_rows(rows):
    ax = drawn(plot.memory(MemoryReport(8, 0, 8, None, "Adam", rows)))
    assert ax.get_xlabel() == "bytes"


def test_an_empty_report_is_refused():
    with pytest.raises(ct.ArgumentError, match="no row"):
        plot.memory(MemoryReport(8, 0, 8, None, "Adam", ()))


def test_growth():
    lines = {"ResNet": [10_000, 990_000], "Backprop": [10_000, 1_000_000], "flat": [500, 500]}
    figure = plot.memory_growth([1, 100], lines, reference="ResNet")
    ax = drawn(figure)
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")
    assert [text.get_text() for text in ax.texts] == ["flat", "ResNet", "Backprop"]
    places = [text.get_window_extent().y0 for text in ax.texts]
    heights = [text.get_window_extent().height for text in ax.texts]
    assert all(b - a >= 0.9 * h for a, b, h in zip(places, places[1:], heights, strict=False))
    colours = {line.get_label(): line.get_color() for line in ax.lines}
    assert colours["ResNet"] == "#000000"
    assert len(set(colours.values())) == 3
    ticks = [text.get_text() for text in ax.get_yticklabels()]
    assert {"1 kB", "1 MB"} <= set(ticks)


@pytest.mark.parametrize(
    ("steps", "lines", "options", "match"),
    [
        ([1, 2], {}, {}, "at least one line"),
        ([1], {"a": [1]}, {}, "at least two steps"),
        ([1, 2], {"a": [1]}, {}, "'a' has 1 values for 2 steps"),
        ([1, 2], {"a": [0, 1]}, {}, "'a' has 0 bytes"),
        ([1, 2], {"a": [1, 1]}, {"reference": "b"}, "no line 'b'"),
    ],
)
def test_growth_that_cannot_be_drawn(steps, lines, options, match):
    with pytest.raises(ct.ArgumentError, match=match):
        plot.memory_growth(steps, lines, **options)


def test_names_move_apart_around_where_they_belong():
    assert apart([0, 0, 0], 1) == [-1, 0, 1]
    assert apart([0, 5, 5.5, 20], 2) == [0, 4.25, 6.25, 20]
    found = apart([1, 1.5, 2, 2.2, 9], 1)
    assert all(b - a >= 1 - 1e-12 for a, b in itertools.pairwise(found))
