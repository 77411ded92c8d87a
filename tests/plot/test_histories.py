"""What happened while training, and what a flow contributes."""

import io
import math
from types import SimpleNamespace

import pytest
import torch

import continua as ct
from continua import plot
from continua.models import Ablation
from plot.flows import legend

# -- histories --------------------------------------------------------------------------------


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


# -- ablation ---------------------------------------------------------------------------------


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
