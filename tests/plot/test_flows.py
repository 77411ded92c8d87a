"""Figures of flows as files: whole, legible, the same each time."""

import io

import matplotlib as mpl
import pytest
import torch
from torch import nn

import continua as ct
from continua import plot
from continua.models import Ablation
from plot.flows import PLANE, S, bell, flow, normal, some_labels, some_points, turning

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
