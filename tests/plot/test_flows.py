"""The figures of flows: the right lines and points, nothing cut off, one sentence for mistakes."""

import io
import math
from types import SimpleNamespace

import matplotlib as mpl
import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from torch.distributions import Independent, Normal

import continua as ct
from continua import plot
from continua.models import Ablation

S = [0.0, 0.25, 0.5, 1.0]
PLANE = (-3.0, 3.0, -2.0, 2.0)


class Turn(nn.Module):
    """A quarter turn per unit of depth."""

    def __init__(self):
        super().__init__()
        self.rate = nn.Parameter(torch.tensor([math.pi / 2]))

    def forward(self, z):
        return self.rate * torch.stack([-z[:, 1], z[:, 0]], 1)


def turning(basis=None, span=(0.0, 1.0)):
    return ct.ODEBlock(Turn(), basis, ct.RK4(steps=16), span=span)


def some_points(count=12):
    return torch.randn(count, 2, generator=torch.Generator().manual_seed(0))


def some_labels(count=12, classes=2):
    return torch.arange(count) % classes


def turned(s=S, count=12):
    with torch.no_grad():
        return turning().solve(some_points(count), save_at=s).z


def title(ax):
    return ax.get_title(loc="left")


def legend(figure):
    return [text.get_text() for text in figure.legends[0].get_texts()]


def normal(dims=2):
    return Independent(Normal(torch.zeros(dims), torch.ones(dims)), 1)


def bell(mean=0.0):
    x = torch.linspace(-4, 4, 81)
    return x.tolist(), Normal(mean, 1.0).log_prob(x).exp().tolist()


def flow(dims=2):
    return torch.randn(4, 12, dims, generator=torch.Generator().manual_seed(1)).cumsum(0)


FIGURES = {
    "depth_flow": lambda: plot.depth_flow(S, flow(), some_labels(), title="a flow"),
    "depth_flow, one": lambda: plot.depth_flow(S, flow(1)),
    "depth_flow, three": lambda: plot.depth_flow(S, flow(3), some_labels(classes=3)),
    "phase_flow": lambda: plot.phase_flow(turning(), some_points(), some_labels()),
    "phase_flow, four": lambda: plot.phase_flow(turning(), some_points(), depths=S),
    "phase_flow, one": lambda: plot.phase_flow(turning(), some_points(), depths=[1.0]),
    "decision": lambda: plot.decision(nn.Linear(2, 1), some_points(), some_labels()),
    "decision, four": lambda: plot.decision(nn.Linear(2, 4), some_points(), some_labels(classes=4)),
    "functions_of_depth": lambda: plot.functions_of_depth(turning(ct.Fourier(2))),
    "functions_of_depth, many": lambda: plot.functions_of_depth(turning(ct.PiecewiseConstant(16))),
    "density": lambda: plot.density(
        normal().log_prob, some_points(), extent=(-4, 4, -4, 4), data=some_points(), resolution=30
    ),
    "density, alone": lambda: plot.density(normal().log_prob, extent=PLANE, resolution=30),
    "densities": lambda: plot.densities({"a": bell(), "b": bell(1.0)}, {"b": torch.randn(50)}),
    "evaluations": lambda: plot.evaluations({"a": [20, 26], "b": [20, 20, 32]}),
    "losses": lambda: plot.losses({"a": [1 / n for n in range(1, 400)]}),
    "ablation": lambda: plot.ablation(Ablation("accuracy", 1.0, {"1": 0.5}, {"1": 0.1})),
}


@pytest.mark.parametrize("name", FIGURES)
def test_figures_are_saved_whole_as_png_and_svg(name):
    before = dict(mpl.rcParams)
    figure = FIGURES[name]()
    assert dict(mpl.rcParams) == before
    for kind, start in (("png", b"\x89PNG"), ("svg", b"<?xml")):
        buffer = io.BytesIO()
        figure.savefig(buffer, format=kind)
        assert buffer.getvalue().startswith(start)
    whole = figure.get_tightbbox()  # in inches
    width, height = figure.get_size_inches()
    assert whole.x0 >= -0.01
    assert whole.y0 >= -0.01
    assert whole.x1 <= width + 0.01
    assert whole.y1 <= height + 0.01
    # Written at 700 pixels of width, the smallest text is still seven pixels high.
    sizes = [t.get_fontsize() for ax in figure.axes for t in (ax.xaxis.label, ax.yaxis.label)]
    assert min(sizes) / 72 * 700 / width >= 7


@pytest.mark.parametrize("name", FIGURES)
def test_the_same_figure_is_the_same_file(name):
    def written():
        torch.manual_seed(0)
        buffer = io.BytesIO()
        FIGURES[name]().savefig(buffer, format="png", metadata={"Software": None})
        return buffer.getvalue()

    assert written() == written()


# -- trajectories over depth -------------------------------------------------------------------


@pytest.mark.parametrize(("dims", "panels"), [(1, 1), (2, 2), (3, 3), (5, 3)])
def test_depth_flow_has_a_panel_per_coordinate_and_a_line_per_sample(dims, panels):
    z = flow(dims)
    figure = plot.depth_flow(S, z, some_labels())
    assert [ax.get_ylabel() for ax in figure.axes] == [f"$z_{i + 1}(s)$" for i in range(panels)]
    assert legend(figure) == ["class 0", "class 1"]
    for i, ax in enumerate(figure.axes):
        (lines,) = ax.collections
        drawn = {tuple(line[:, 1].tolist()) for line in lines.get_segments()}
        assert drawn == {tuple(z[:, j, i].double().tolist()) for j in range(12)}
        assert lines.get_segments()[0][:, 0].tolist() == S
        low, high = ax.get_ylim()
        assert low <= float(z[..., i].min())
        assert high >= float(z[..., i].max())


def test_lines_have_the_colour_of_their_label():
    z, labels = flow(1), some_labels()
    (lines,) = plot.depth_flow(S, z, labels).axes[0].collections
    of = {float(z[0, j, 0]): int(labels[j]) for j in range(12)}
    seen = {}
    for line, colour in zip(lines.get_segments(), lines.get_colors(), strict=True):
        seen.setdefault(of[float(line[0, 1])], set()).add(tuple(colour[:3]))
    assert {len(colours) for colours in seen.values()} == {1}
    assert seen[0] != seen[1]


def test_without_labels_there_is_no_legend():
    assert not plot.depth_flow(S, flow()).legends


def test_depth_may_decrease():
    figure = plot.depth_flow(S[::-1], flow())
    assert figure.axes[0].get_xlim() == (0, 1)


@pytest.mark.parametrize(
    ("s", "z", "labels", "said"),
    [
        (S, torch.ones(4, 3), None, r"shape \[S, B, D\], not \[4, 3\]"),
        (S, [1.0], None, "not list"),
        (S, torch.ones(4, 0, 2), None, r"not \[4, 0, 2\]"),
        (S[:3], flow(), None, "3 depths, but states at 4"),
        ([0.0], flow()[:1], None, "two depths or more"),
        ([0.0, 0.5, 0.5, 1.0], flow(), None, "increase, or decrease, all the way"),
        (S, flow() / 0, None, "96 numbers that are not finite"),
        (S, flow(), some_labels(11), r"12 samples need labels of shape \[12\], not \[11\]"),
        (S, flow(), torch.ones(12, 2), r"not \[12, 2\]"),
        (S, flow(), torch.full((12,), 0.5), r"labels are whole numbers, not 0\.5"),
    ],
)
def test_flows_that_do_not_fit_are_named(s, z, labels, said):
    with pytest.raises(ct.ArgumentError, match=said):
        plot.depth_flow(s, z, labels)


# -- the vector field --------------------------------------------------------------------------


def offsets(ax):
    """Where the markers of each label stand."""
    return [
        torch.from_numpy(np.array(c.get_offsets())) for c in ax.collections if len(c.get_offsets())
    ]


def streams(ax):
    return [c for c in ax.collections if type(c).__name__ == "LineCollection" and c.zorder == 1]


def test_phase_flow_has_the_states_of_its_depths():
    x, labels = some_points(), some_labels()
    figure = plot.phase_flow(turning(), x, labels)
    assert [title(ax) for ax in figure.axes] == ["s = 0.00", "s = 0.50", "s = 1.00"]
    assert legend(figure) == ["class 0", "class 1"]
    for ax, angle in zip(figure.axes, (0, math.pi / 4, math.pi / 2), strict=True):
        c, s = math.cos(angle), math.sin(angle)
        there = x.double() @ torch.tensor([[c, s], [-s, c]], dtype=torch.float64)
        first, second = offsets(ax)[-2:]
        assert torch.allclose(first, there[labels == 0], atol=1e-4)
        assert torch.allclose(second, there[labels == 1], atol=1e-4)


def test_the_image_is_the_magnitude_of_the_field():
    figure = plot.phase_flow(turning(), some_points(), extent=PLANE)
    for ax in figure.axes:
        assert streams(ax)
        image = ax.images[0].get_array().data
        # The speed of a turn is its rate times the distance, largest in the corners.
        assert image.max() == pytest.approx(math.pi / 2 * math.hypot(3, 2), rel=1e-5)
        assert image[0, 0] == pytest.approx(image.max())
        assert ax.get_xlim() == (-3, 3)
        assert ax.get_ylim() == (-2, 2)


def test_a_jump_at_a_panel_is_read_from_inside_the_span():
    block = turning(ct.PiecewiseConstant(2))
    with torch.no_grad():
        block.field.rate.copy_(torch.tensor([[1.0], [3.0]]))
    for span, expected in (((0.0, 1.0), (1, 3, 3)), ((1.0, 0.0), (3, 1, 1))):
        other = ct.ODEBlock(Turn(), ct.PiecewiseConstant(2), ct.RK4(steps=16), span=span)
        other.load_state_dict(block.state_dict())
        figure = plot.phase_flow(
            other, some_points(), depths=(span[0], 0.5, span[1]), extent=(-1, 1, -1, 1)
        )
        found = [ax.images[0].get_array().data.max() / math.sqrt(2) for ax in figure.axes]
        assert found == pytest.approx(expected, rel=1e-5)


def test_trajectories_reach_as_far_as_their_panel():
    figure = plot.phase_flow(turning(), some_points(), field=False)
    for ax, s in zip(figure.axes, (0.0, 0.5, 1.0), strict=True):
        trails = [c for c in ax.collections if c.zorder == 3]
        assert len(trails) == (s > 0)
        assert not ax.images
        for trail in trails:
            assert len(trail.get_segments()) == 12
            assert len(trail.get_segments()[0]) == 1 + round(80 * s)


class Tell(ct.Field):
    """Reads the depth, and the input if it should."""

    def __init__(self, reads):
        super().__init__()
        self.reads = reads

    def forward(self, s, z, x):
        value = x(s) if isinstance(x, ct.Path) else x
        return s * z + (value if self.reads else 0)


def test_a_field_that_depends_on_the_sample_is_left_out():
    x = some_points()
    path = ct.Path([0.0, 1.0], torch.stack([x, -x]))
    for control in (None, x.flip(0), path):
        for reads in (True, False):
            block = ct.ODEBlock(Tell(reads), solver=ct.RK4(steps=4))
            figure = plot.phase_flow(block, x, control=control)
            assert [bool(ax.images) for ax in figure.axes] == [not reads] * 3
    controlled = ct.ODEBlock(ct.DataControl(nn.Linear(4, 2)), solver=ct.RK4(steps=4))
    assert not any(ax.images for ax in plot.phase_flow(controlled, x).axes)


def test_a_control_that_all_samples_share_leaves_the_field():
    x = some_points()
    block = ct.ODEBlock(Tell(True), solver=ct.RK4(steps=4))
    for control in (torch.ones(12, 2), torch.ones(())):
        assert all(ax.images for ax in plot.phase_flow(block, x, control=control).axes)


def test_a_field_of_zeros_and_a_single_point():
    class Stay(nn.Module):
        def forward(self, z):
            return 0 * z

    figure = plot.phase_flow(ct.ODEBlock(Stay(), solver=ct.Euler(steps=2)), torch.ones(1, 2))
    assert not streams(figure.axes[0])
    figure.savefig(io.BytesIO(), format="png")


def test_drawing_does_not_change_the_model():
    block = ct.ODEBlock(nn.BatchNorm1d(2), ct.PiecewiseConstant(2), ct.Euler(steps=2))
    model = nn.Sequential(block, nn.Linear(2, 1))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    plot.phase_flow(block, some_points())
    plot.decision(model, some_points(), some_labels(), resolution=10)
    plot.functions_of_depth(block)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(module.training for module in model.modules())


@pytest.mark.parametrize(
    ("x", "more", "said"),
    [
        (torch.ones(5, 3), {}, r"inputs are points of shape \[B, 2\], not \[5, 3\]"),
        (torch.ones(0, 2), {}, r"not \[0, 2\]"),
        (some_points() / 0, {}, "not finite"),
        (some_points(), {"depths": [0.0, 2.0]}, r"depth 2 lies outside the block's span \(0, 1\)"),
        (some_points(), {"depths": []}, "no depths"),
        (some_points(), {"depths": [1.0, 0.0]}, "sort them"),
        (some_points(), {"depths": [0.5, 0.5]}, "each once"),
        (some_points(), {"labels": some_labels(5)}, "12 samples need labels"),
        (some_points(), {"extent": (1, 0, 0, 1)}, r"left < right .*, not \(1, 0, 0, 1\)"),
        (some_points(), {"extent": (0, 1)}, r"\(left, right, bottom, top\), not \(0, 1\)"),
        (some_points(), {"extent": (0, math.inf, 0, 1)}, "extent is"),
    ],
)
def test_phase_flows_that_cannot_be_are_named(x, more, said):
    with pytest.raises(ct.ArgumentError, match=said):
        plot.phase_flow(turning(), x, **more)


def test_other_modules_are_named():
    with pytest.raises(ct.ArgumentError, match="Turn is not an ODEBlock"):
        plot.phase_flow(Turn(), some_points())


# -- decisions ---------------------------------------------------------------------------------


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


# -- functions of depth ------------------------------------------------------------------------


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


# -- densities ---------------------------------------------------------------------------------


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


# -- histories ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("most", "scale"), [(160, "linear"), (200, "log")])
def test_evaluations_have_a_line_per_model(most, scale):
    figure = plot.evaluations({"a": [20, 26, most], "b": [20, 20]}, xlabel="step")
    (ax,) = figure.axes
    assert [list(line.get_ydata()) for line in ax.lines] == [[20, 26, most], [20, 20]]
    assert list(ax.lines[0].get_xdata()) == [1, 2, 3]
    assert ax.get_xlabel() == "step"
    assert ax.get_yscale() == scale
    assert legend(figure) == ["a", "b"]


def test_a_long_history_has_its_mean_on_top():
    values = [2.0 + (-1) ** n for n in range(1000)]
    pale, line = plot.losses({"a": values}).axes[0].lines
    assert list(pale.get_ydata()) == values
    assert line.get_label() == "a"
    assert line.get_ydata()[100:-100] == pytest.approx(2.0, abs=0.1)
    assert line.get_ydata()[0] == values[0]


def test_a_gap_stays_a_gap():
    values = [1.0] * 300
    values[100] = math.nan
    values[150] = math.inf
    _, line = plot.losses({"a": values}).axes[0].lines
    y = torch.tensor(line.get_ydata())
    assert y.isnan().nonzero().flatten().tolist() == [100, 150]
    assert bool((y[~y.isnan()] == 1).all())


def test_losses_on_either_axis():
    figure = plot.losses({"a": [1.0, -1.0]}, log=False, ylabel="likelihood")
    assert figure.axes[0].get_yscale() == "linear"
    assert figure.axes[0].get_ylabel() == "likelihood"
    assert plot.losses({"a": [1.0, 0.5]}).axes[0].get_yscale() == "log"


@pytest.mark.parametrize("names", [1, 3, 7])
@pytest.mark.parametrize("letters", [1, 30])
def test_any_number_of_names_fits_below(names, letters):
    histories = {chr(97 + i) * letters: [1.0 + i] for i in range(names)}
    figure = plot.evaluations(histories)
    figure.savefig(io.BytesIO(), format="png")
    box = figure.legends[0].get_window_extent()
    assert box.x0 >= 0
    assert box.x1 <= figure.bbox.width


@pytest.mark.parametrize(
    ("draw", "said"),
    [
        (lambda: plot.evaluations({}), "no histories"),
        (lambda: plot.losses({}), "no histories"),
        (lambda: plot.losses({"a": []}), "'a' has no finite number"),
        (lambda: plot.losses({"a": [math.nan]}), "'a' has no finite number"),
        (lambda: plot.losses({"a": [1.0, -1.0]}), "'a' has -1; give log=False"),
        (lambda: plot.evaluations({"a": [0]}), "evaluations is positive, but history 'a' has 0$"),
    ],
)
def test_histories_that_cannot_be_drawn_are_named(draw, said):
    with pytest.raises(ct.ArgumentError, match=said):
        draw()


# -- ablation ----------------------------------------------------------------------------------


def test_ablation_has_a_bar_for_the_whole_and_each_flow():
    report = Ablation("accuracy", 0.99, {"1": 0.5, "3": 0.98}, {"1": 1.0, "3": 0.01})
    figure = plot.ablation(report)
    (ax,) = figure.axes
    assert [bar.get_width() for bar in ax.patches] == [0.99, 0.5, 0.98]
    written = [text.get_text() for text in ax.get_yticklabels()]
    assert written == ["whole model", "without flow 1", "without flow 3"]
    assert [text.get_text() for text in ax.texts] == ["0.990", "0.500", "0.980"]
    assert ax.get_xlabel() == "accuracy"
    assert ax.get_xlim()[0] == 0


def test_any_object_with_these_attributes_will_do():
    report = SimpleNamespace(measure="log-likelihood", whole=-1.5, without={"": -1234.5})
    (ax,) = plot.ablation(report).axes
    assert [text.get_text() for text in ax.get_yticklabels()][1] == "without the flow"
    assert ax.get_xlim()[0] < -1234.5
    assert ax.get_xlim()[1] == 0


def test_flows_with_the_same_beginning_keep_their_bars():
    name = "a.very.long.path.to.a.module.called."
    report = SimpleNamespace(measure="m", whole=1.0, without={f"{name}{i}": 0.5 for i in "01"})
    (ax,) = plot.ablation(report).axes
    assert len(ax.patches) == 3
    written = [text.get_text() for text in ax.get_yticklabels()]
    assert written[1:] == [f"without flow …o.a.module.called.{i}" for i in "01"]


@pytest.mark.parametrize(
    ("whole", "without", "said"),
    [(1.0, {}, "no flow that was left out"), (math.nan, {"1": 0.5}, "'whole model' is nan")],
)
def test_ablations_that_cannot_be_drawn_are_named(whole, without, said):
    with pytest.raises(ct.ArgumentError, match=said):
        plot.ablation(SimpleNamespace(measure="m", whole=whole, without=without))


# -- animation ---------------------------------------------------------------------------------


def test_an_animation_has_the_pictures_asked_for(tmp_path):
    before = dict(mpl.rcParams)
    path = plot.animate(S, turned(), some_labels(), str(tmp_path / "flow.gif"), seconds=0.6, fps=10)
    assert dict(mpl.rcParams) == before
    assert path == tmp_path / "flow.gif"
    assert list(tmp_path.iterdir()) == [path]
    with Image.open(path) as gif:
        assert gif.format == "GIF"
        assert gif.n_frames == 6
        assert gif.info["loop"] == 0
        durations = []
        for i in range(6):
            gif.seek(i)
            durations.append(gif.info["duration"])
        # The last one stands for a second more.
        assert durations == [100] * 5 + [1100]


def test_states_between_depths_lie_on_straight_lines():
    from continua.plot._animation import between

    z = turned().double()
    for depths, states in ((S, z), (S[::-1], z.flip(0))):
        assert torch.equal(between(depths, states, 0.0), z[0])
        assert torch.equal(between(depths, states, 1.0), z[3])
        assert torch.allclose(between(depths, states, 0.75), (z[2] + z[3]) / 2)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"z": flow(3)}, r"plane are \[S, B, 2\], not \[4, 12, 3\]"),
        ({"s": S[:2]}, "2 depths, but states at 4"),
        ({"labels": some_labels(3)}, "12 samples need labels"),
        ({"path": "flow.png"}, "written as a .gif, not as 'flow.png'"),
        ({"seconds": 0.0}, "seconds is a positive number, not 0"),
        ({"seconds": math.nan}, "not nan"),
        ({"fps": 0}, "fps is a whole number from 1 to 50, not 0"),
        ({"fps": 60}, "not 60"),
        ({"path": "nowhere/flow.gif"}, "folder nowhere does not exist"),
    ],
)
def test_animations_that_cannot_be_are_named(change, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    arguments = {"s": S, "z": flow(), "labels": None, "path": "flow.gif", **change}
    with pytest.raises(ct.ContinuaError, match=said):
        plot.animate(**arguments)
    assert not list(tmp_path.iterdir())


def test_what_was_there_stays_if_drawing_fails(tmp_path, monkeypatch):
    path = tmp_path / "flow.gif"
    path.write_bytes(b"old")

    def fail(*args, **kwargs):
        raise OSError("no space left")

    monkeypatch.setattr("continua.plot._animation.PillowWriter.finish", fail)
    with pytest.raises(OSError, match="no space left"):
        plot.animate(S, flow(), None, path, seconds=0.1)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_depth_flow_draws_each_sample_to_its_own_depth():
    z, ends = flow(1), torch.linspace(0.5, 2.0, flow(1).shape[1])
    (lines, dots) = plot.depth_flow(S, z, ends=ends).axes[0].collections
    assert sorted(path.vertices[-1, 0] for path in lines.get_paths()) == pytest.approx(
        sorted((S[-1] * ends).tolist())
    )
    assert len(dots.get_offsets()) == len(ends)
    with pytest.raises(ct.ShapeError, match="one depth per sample"):
        plot.depth_flow(S, z, ends=ends[1:])
