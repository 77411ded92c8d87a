"""The figures show what is there: the right lines, jumps upright, nothing global touched."""

import io

import matplotlib as mpl
import pytest
import torch
from torch import nn

import continua as ct
from continua import plot


def a_block(basis, span=(0.0, 1.0)):
    torch.manual_seed(0)
    field = nn.Sequential(nn.BatchNorm1d(5), nn.Linear(5, 5))
    block = ct.ODEBlock(field, basis, ct.Euler(steps=8), span=span)
    with torch.no_grad():
        for p in block.parameters():
            p += torch.randn_like(p)
    for _ in range(3):
        block(torch.randn(32, 5))
    return block


def title(figure, panel=0):
    return figure.axes[panel].get_title(loc="left")


def lines(figure, panel=0):
    return {line.get_label(): line for line in figure.axes[panel].get_lines()}


def png(figure):
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    return buffer.getvalue()


@pytest.fixture
def block():
    return a_block(ct.PiecewiseConstant(4))


@pytest.mark.parametrize("draw", [plot.weights, plot.state])
def test_one_panel_per_scalar_and_one_line_per_block(draw, block):
    half = ct.compress(block, ct.PiecewiseConstant(2))
    figure = draw(block, {"half": half}, count=3, label="whole")
    assert len(figure.axes) == 3
    for ax in figure.axes:
        assert [line.get_label() for line in ax.get_lines()] == ["whole", "half"]
    assert figure.axes[-1].get_xlabel() == "depth s"
    assert figure.axes[0].get_ylabel()
    assert [t.get_text() for t in figure.legends[0].get_texts()] == ["whole", "half"]
    assert png(figure).startswith(b"\x89PNG")


def test_buckets_are_steps(block):
    s, theta = lines(plot.weights(block, tensor="1.bias", count=1))["source"].get_data()
    assert list(s) == [0, 0.25, 0.25, 0.5, 0.5, 0.75, 0.75, 1]
    assert list(theta[0::2]) == list(theta[1::2])  # level within each cell
    stack = block.field[1].bias.detach().double()
    i = int((stack - stack.mean(0)).pow(2).mean(0).argmax())
    assert list(theta[0::2]) == pytest.approx(stack[:, i].tolist())


def test_a_discontinuous_line_has_both_sides_of_its_jump():
    block = a_block(ct.DiscontinuousLinear(4))
    figure = plot.weights(block, tensor="1.bias", count=1)
    i = int(title(figure).removeprefix("1.bias[").removesuffix("]"))
    s, theta = lines(figure)["source"].get_data()
    at_the_jump = [float(v) for d, v in zip(s, theta, strict=True) if d == 0.5]
    read = [block.at(0.5, side)[1].bias[i].item() for side in ("left", "right")]
    assert at_the_jump == pytest.approx(read)
    assert read[0] != pytest.approx(read[1])


@pytest.mark.parametrize(
    "basis", [ct.PiecewiseLinear(4), ct.Chebyshev(3), ct.Fourier(2), ct.BSpline(6), ct.Constant()]
)
def test_every_curve_is_the_function_that_the_solver_reads(block, basis):
    other = ct.compress(block, basis)
    figure = plot.weights(block, {"other": other}, tensor="1.bias")
    i = int(title(figure).removeprefix("1.bias[").removesuffix("]"))
    s, theta = lines(figure)["other"].get_data()
    for d, v in list(zip(s, theta, strict=True))[::7]:
        assert float(v) == pytest.approx(other.at(d)[1].bias[i].item(), abs=1e-5)


def test_depth_is_that_of_the_span():
    figure = plot.weights(a_block(ct.PiecewiseConstant(4), span=(0.0, 3.0)))
    assert lines(figure)["source"].get_xdata()[[0, -1]].tolist() == [0.0, 3.0]


def test_a_variance_is_shown_as_it_is_read_never_negative():
    block = a_block(ct.PiecewiseLinear(4))
    with torch.no_grad():
        block.field[0].running_var[1] = -1.0
    figure = plot.state(block, count=5)
    assert "running variance" in figure.axes[0].get_ylabel()
    for panel in range(5):
        assert lines(figure, panel)["source"].get_ydata().min() >= 0


def test_the_most_varying_come_first(block):
    with torch.no_grad():
        block.field[1].weight[:, 3, 2] = torch.tensor([-50.0, 50.0, -50.0, 50.0])
    assert title(plot.weights(block)) == "1.weight[3, 2]"


def test_more_scalars_than_there_are(block):
    assert len(plot.state(block, count=50).axes) == 5


@pytest.mark.parametrize(
    ("draw", "arguments", "said"),
    [
        (plot.weights, {"tensor": "2.weight"}, "no parameter '2.weight'; it has '0.weight'"),
        (plot.weights, {"tensor": "0.running_var"}, "no parameter '0.running_var'"),
        (plot.state, {"tensor": "1.weight"}, "no buffer '1.weight'"),
        (plot.weights, {"count": 0}, "count is at least 1, not 0"),
    ],
)
def test_what_cannot_be_drawn_is_named(block, draw, arguments, said):
    with pytest.raises(ct.ArgumentError, match=said):
        draw(block, **arguments)


def test_blocks_without_state_and_other_models_are_named(block):
    stateless = ct.ODEBlock(nn.Linear(5, 5), ct.PiecewiseConstant(4))
    with pytest.raises(ct.ArgumentError, match="no buffer that varies"):
        plot.state(stateless)
    with pytest.raises(ct.ArgumentError, match="'other' has no tensor"):
        plot.weights(block, {"other": stateless})
    with pytest.raises(ct.ArgumentError, match="Linear is not an ODEBlock"):
        plot.weights(nn.Linear(2, 2))


SOURCE = plot.Measurement("source", 8, 8000, 0.99)
OTHERS = [
    plot.Measurement("buckets", 4, 4000, 0.98),
    plot.Measurement("hats", 4, 4000, 0.97),
    plot.Measurement("buckets", 2, 2000, 0.95),
]


def test_sizes_has_one_marker_per_series_at_the_right_places():
    figure = plot.sizes(SOURCE, OTHERS, images=450)
    ax = figure.axes[0]
    drawn = [c for c in ax.containers if c.get_label() in ("source", "buckets", "hats")]
    places = {(c.get_label(), *(float(v[0]) for v in c.lines[0].get_data())) for c in drawn}
    assert places == {
        ("source", 8.0, 99.0),
        ("buckets", 4.0, 98.0),
        ("hats", 4.0, 97.0),
        ("buckets", 2.0, 95.0),
    }
    looks = {}
    for c in drawn:
        looks.setdefault(c.get_label(), set()).add(
            (c.lines[0].get_marker(), c.lines[0].get_color())
        )
    assert all(len(look) == 1 for look in looks.values())
    assert len(set.union(*looks.values())) == 3
    legend = [t.get_text() for t in figure.legends[0].get_texts()]
    assert legend == ["source", "buckets", "hats"]
    assert "450 held-out images" in title(figure)
    assert ax.get_ylabel() == "held-out accuracy, %"
    assert ax.get_ylim()[0] < 95
    assert ax.get_ylim()[1] > 100
    assert png(figure).startswith(b"\x89PNG")


def test_models_of_one_size_do_not_hide_each_other():
    figure = plot.sizes(SOURCE, OTHERS, images=450)
    png(figure)  # which lays it out
    ax = figure.axes[0]
    on_paper = [
        float(line.get_transform().transform(line.get_xydata())[0, 0])
        for line in (c.lines[0] for c in ax.containers)
        if line.get_xydata()[0, 0] == 4.0
    ]
    assert abs(on_paper[0] - on_paper[1]) > 5


@pytest.mark.parametrize("accuracy", [0.0, 0.5, 1.0])
def test_bars_contain_the_accuracy(accuracy):
    m = plot.Measurement("one", 1, 10, accuracy)
    figure = plot.sizes(m, [], images=20)
    ((low, high),) = [
        (100 * accuracy - p[0, 1], p[1, 1] - 100 * accuracy)
        for c in figure.axes[0].containers
        for p in c.lines[2][0].get_segments()
    ]
    assert min(low, high) >= 0
    assert low + high > 0


def test_an_accuracy_in_percent_is_refused():
    with pytest.raises(ct.ArgumentError, match=r"share from 0 to 1, not 98\.5"):
        plot.sizes(plot.Measurement("a", 1, 10, 98.5), [], images=450)


def test_global_settings_stay_and_pyplot_is_not_used(block):
    before = dict(mpl.rcParams)
    plot.weights(block)
    plot.sizes(SOURCE, OTHERS, images=450)
    assert dict(mpl.rcParams) == before
