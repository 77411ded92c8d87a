"""Trajectories: over depth, over the vector field, and moving."""

import io
import math

import matplotlib as mpl
import pytest
import torch
from PIL import Image
from torch import nn

import continua as ct
from continua import plot
from plot.flows import (
    PLANE,
    S,
    Turn,
    flow,
    legend,
    offsets,
    some_labels,
    some_points,
    title,
    turned,
    turning,
)

# -- trajectories over depth ------------------------------------------------------------------


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


def test_depth_flow_draws_each_sample_to_its_own_depth():
    z, ends = flow(1), torch.linspace(0.5, 2.0, flow(1).shape[1])
    (lines, dots) = plot.depth_flow(S, z, ends=ends).axes[0].collections
    assert sorted(path.vertices[-1, 0] for path in lines.get_paths()) == pytest.approx(
        sorted((S[-1] * ends).tolist())
    )
    assert len(dots.get_offsets()) == len(ends)
    with pytest.raises(ct.ShapeError, match="one depth per sample"):
        plot.depth_flow(S, z, ends=ends[1:])


# -- the vector field -------------------------------------------------------------------------


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
        value = x(s) if isinstance(x, ct.Signal) else x
        return s * z + (value if self.reads else 0)


def test_a_field_that_depends_on_the_sample_is_left_out():
    x = some_points()
    path = ct.Signal([0.0, 1.0], torch.stack([x, -x]))
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


# -- animation --------------------------------------------------------------------------------


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
        ({"fps": 0}, "fps is a whole number of at least 1, not 0"),
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
