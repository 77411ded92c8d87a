"""Accuracy over steps."""

import pytest

import continua as ct
from continua import plot
from plot.trials import HALF, RUNS, SOURCE, legend, places, png, title, trial


def test_convergence_has_a_panel_per_run_and_a_line_per_scheme():
    figure = plot.convergence(RUNS, samples=1000)
    assert [title(ax) for ax in figure.axes] == list(RUNS)
    for ax in figure.axes:
        assert ax.get_xlabel() == "steps"
        for scheme in ("Euler", "RK4"):
            assert [x for x, _ in places(ax, scheme)] == [2, 8, 32]
        assert places(ax, "as trained") == [(8.0, 99.0)]
    assert [ax.get_ylabel() for ax in figure.axes] == ["accuracy, %", ""]
    assert legend(figure) == ["as trained", "RK4", "Euler"]
    assert figure.axes[0].get_ylim() == figure.axes[1].get_ylim()
    assert png(figure).startswith(b"\x89PNG")


def test_steps_are_written_as_integers_on_an_axis_of_doublings():
    figure = plot.convergence(RUNS, samples=1000)
    png(figure)
    axis = figure.axes[0].xaxis
    assert axis.get_scale() == "log"
    assert axis.get_transform().base == 2
    assert [t.get_text() for t in axis.get_ticklabels()] == ["2", "8", "32"]


def test_of_many_steps_the_powers_of_two_are_written():
    trials = [trial(8, 0.9, steps=n) for n in range(1, 33)] + [trial(8, 0.9, method="source")]
    figure = plot.convergence({"one": trials}, samples=100)
    png(figure)
    written = [int(t.get_text()) for t in figure.axes[0].xaxis.get_ticklabels()]
    assert {1, 2, 4, 8, 16, 32} <= set(written)
    assert len(written) <= 10


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_any_number_of_runs(count):
    runs = {f"run {i} " + "with a long title " * i: RUNS[next(iter(RUNS))] for i in range(count)}
    figure = plot.convergence(runs, samples=1000)
    assert len(figure.axes) == count
    assert sum(ax.get_xlabel() == "steps" for ax in figure.axes) == min(count, 2)
    png(figure)


def test_one_point_is_a_figure_and_a_sentence():
    runs = {"alone": [SOURCE]}
    png(plot.convergence(runs, samples=1000))
    assert plot.describe_convergence(runs) == "Alone: 99.1 % as trained, the only measurement."


def test_fewer_steps_alone_are_told_too():
    runs = {"alone": [trial(8, 0.5, steps=4), SOURCE]}
    said = plot.describe_convergence(runs)
    assert said == "Alone: 99.1 % as trained, 50.0 % with fewer steps (Euler in 4 steps)."


def test_the_trained_model_may_be_evaluated_twice():
    again = trial(8, SOURCE.accuracy - 0.001)
    figure = plot.convergence({"one": [again, SOURCE]}, samples=1000)
    assert places(figure.axes[0], "Euler") == [(8.0, pytest.approx(99.1))]


def test_the_sentence_of_convergence():
    apart = trial(8, 0.7, scheme="Midpoint", steps=64)
    runs = {**RUNS, "third": [SOURCE, trial(8, 0.65, steps=32), apart]}
    assert plot.describe_convergence(runs) == (
        "Trained with Euler, 8 steps: 99.0 % as trained, 59.4 % at the most steps of each scheme, "
        "at most 39.6 points away; "
        "trained with RK4, 8 steps: 99.0 % as trained, 98.4 % at the most steps of each scheme, "
        "at most 0.6 points away; "
        "third: 99.1 % as trained, from 65.0 % (Euler in 32 steps) to 70.0 % (Midpoint in 64 "
        "steps) at the most steps of each scheme, at most 34.1 points away."
    )


def test_a_scheme_with_fewer_steps_only_is_not_the_limit():
    coarse = trial(8, 0.2, scheme="RK4", steps=2)
    fine = trial(8, 0.95, steps=16)
    assert plot.describe_convergence({"one": [SOURCE, coarse, fine]}) == (
        "One: 99.1 % as trained, 95.0 % at the most steps (Euler in 16 steps), 4.1 points away."
    )


@pytest.mark.parametrize(
    "use", [lambda r: plot.convergence(r, samples=9), plot.describe_convergence]
)
@pytest.mark.parametrize(
    ("runs", "said"),
    [
        ({}, "no runs"),
        ({"mine": []}, "run 'mine' has no trial with the method 'source'"),
        ({"mine": [HALF]}, "add the model as it was trained"),
        (
            {"mine": [SOURCE, trial(8, 0.5, steps=4), trial(4, 0.6, steps=4)]},
            r"two accuracies for Euler in 4 steps, 0\.5 and 0\.6",
        ),
    ],
)
def test_runs_that_cannot_be_compared_are_named(use, runs, said):
    with pytest.raises(ct.ArgumentError, match=said):
        use(runs)
