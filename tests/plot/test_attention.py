"""Attention over depth."""

import matplotlib as mpl
import pytest
import torch

import continua as ct
from continua import plot
from plot.trials import RUNS, SOURCE, TRIALS, png, title


def some_maps(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0)).softmax(-1)


def words(count):
    return [f"w{i}" for i in range(count)]


def test_attention_is_a_row_of_maps_on_one_scale():
    maps = some_maps(3, 4, 4)
    figure = plot.attention(maps, [0.0, 0.5, 1.0], ["Depth", "costs", "$", "5"], head=2)
    assert [title(ax) for ax in figure.axes] == ["s = 0.00", "s = 0.50", "s = 1.00"]
    images = [ax.images[0] for ax in figure.axes]
    for image, shown in zip(images, maps, strict=True):
        assert torch.as_tensor(image.get_array().data).allclose(shown.double())
    assert {image.get_clim() for image in images} == {(0, float(maps.max()))}
    assert png(figure).startswith(b"\x89PNG")
    labels = [t.get_text() for t in figure.axes[0].get_yticklabels()]
    assert labels == ["Depth", "costs", "$", "5"]
    (scale,) = figure.axes[-1].child_axes
    assert scale.get_ylabel() == "attention, head 2"


@pytest.mark.parametrize(("count", "step"), [(14, 1), (15, 2), (40, 3), (1, 1)])
def test_at_most_fourteen_tokens_are_written(count, step):
    figure = plot.attention(some_maps(2, count, count), [0.0, 1.0], words(count))
    png(figure)
    labels = [t.get_text() for t in figure.axes[0].get_xticklabels()]
    assert labels == words(count)[::step]
    assert len(labels) <= 14


def test_long_tokens_are_cut():
    figure = plot.attention(some_maps(1, 1, 1), [0.0], ["uncharacteristically"])
    assert figure.axes[0].get_yticklabels()[0].get_text() == "uncharacter…"


@pytest.mark.parametrize(
    ("count", "shown"),
    [
        (6, [0, 1, 2, 3, 4, 5]),
        (9, [0, 2, 4, 6, 8]),  # five, so that the gaps are equal
        (16, [0, 3, 6, 9, 12, 15]),
        (8, [0, 1, 3, 4, 6, 7]),  # gaps that cannot be equal
    ],
)
def test_of_many_depths_a_few_are_shown_from_the_first_to_the_last(count, shown):
    figure = plot.attention(some_maps(count, 3, 3), range(count), words(3))
    assert [title(ax) for ax in figure.axes] == [f"s = {i:.2f}" for i in shown]


def test_one_of_several_heads_is_shown():
    maps = some_maps(2, 3, 4, 4).requires_grad_()
    figure = plot.attention(maps, [0.0, 1.0], words(4), head=2)
    shown = torch.as_tensor(figure.axes[1].images[0].get_array().data)
    assert shown.allclose(maps[1, 2].double())


def test_the_sentence_of_attention():
    eye, even = torch.eye(2), torch.full((2, 2), 0.5)
    maps = torch.stack([eye, eye, even])
    assert plot.describe_attention(maps, [0.0, 0.25, 1.0]) == (
        "Between neighbouring depths (3 from 0.00 to 1.00) attention changes by 0.250 on average, "
        "most from depth 0.25 to 1.00, by 0.500."
    )
    one = "Attention was measured at one depth only, 0.25."
    assert plot.describe_attention(maps[:1], [0.25]) == one


@pytest.mark.parametrize(
    ("maps", "depths", "tokens", "said"),
    [
        (some_maps(2, 3, 4), [0.0, 1.0], 3, r"not \[2, 3, 4\]"),
        (some_maps(3, 3), [0.0, 1.0], 3, r"not \[3, 3\]"),
        (torch.ones(0, 3, 3), [], 3, r"not \[0, 3, 3\]"),
        (some_maps(2, 3, 3), [0.0], 3, "1 depths, but 2 maps"),
        (some_maps(2, 3, 3), [0.0, 1.0], 4, "4 tokens, but maps of 3"),
        (some_maps(2, 3, 3) - 1, [0.0, 1.0], 3, "after the softmax"),
        (some_maps(2, 3, 3) / 0, [0.0, 1.0], 3, "after the softmax"),
        (some_maps(2, 1, 3, 3), [0.0, 1.0], 3, "head 1 of 1"),
    ],
)
def test_maps_that_do_not_fit_are_named(maps, depths, tokens, said):
    with pytest.raises(ct.ArgumentError, match=said):
        plot.attention(maps, depths, words(tokens), head=1)


def test_global_settings_stay():
    before = dict(mpl.rcParams)
    plot.pareto(SOURCE, TRIALS, samples=10)
    plot.convergence(RUNS, samples=10)
    plot.latency(SOURCE, TRIALS, batch=1)
    plot.attention(some_maps(2, 3, 3), [0.0, 1.0], words(3))
    assert dict(mpl.rcParams) == before
